"""`tunec compile`: where files go, and that none is written unless all are fine."""

import json
import os
import re
import stat

import pytest
from tests.cli.shell import EXAMPLES, FIVE, GLM, INFEASIBLE, MIXED, files_below

FILES_OF_MIXED = [
    "huggingface/adapter_config.json",
    "huggingface/model_args.yaml",
    "huggingface/sft.yaml",
    "huggingface/training_args.yaml",
    "launch/launch.sh",
    "requirements.txt",
    "run.sh",
]


def test_one_file_goes_to_stdout(tunec):
    result = tunec("compile", FIVE, "--target", "launch")
    assert result.code == 0
    assert result.out.startswith("#!/usr/bin/env bash\n")
    assert result.err == ""


def test_several_files_are_printed_below_their_paths(tunec):
    result = tunec("compile", MIXED)
    assert result.code == 0
    headings = re.findall(r"^==> (\S+) <==$", result.out, re.MULTILINE)
    assert "huggingface/training_args.yaml" in headings
    assert f"{len(headings)} files: -o DIR" in result.err


def test_files_lie_below_their_targets(tunec, tmp_path):
    result = tunec("compile", MIXED, "-o", tmp_path / "out")
    assert (result.code, result.out) == (0, "")
    assert files_below(tmp_path / "out") == FILES_OF_MIXED
    assert result.err.count("wrote ") == len(FILES_OF_MIXED)


def test_several_specs_lie_below_their_names(tunec, tmp_path):
    result = tunec("compile", MIXED, FIVE, "--target", "launch", "-o", tmp_path)
    assert result.code == 0
    assert files_below(tmp_path) == [
        "llama-3.2-3b-mixed/launch/launch.sh",
        "llama-3.2-3b-mixed/requirements.txt",
        "llama-3.2-3b-mixed/run.sh",
        "spec/launch/launch.sh",
    ]


def test_specs_of_one_name_are_refused(tunec, tmp_path):
    result = tunec("compile", FIVE, FIVE, "--target", "launch", "-o", tmp_path)
    assert result.code == 2
    assert "spec" in result.err
    assert files_below(tmp_path) == []


def test_nothing_is_written_when_one_spec_fails(tunec, tmp_path):
    result = tunec("compile", MIXED, INFEASIBLE, "-o", tmp_path / "out")
    assert result.code == 1
    assert "E0701" in result.err
    assert not (tmp_path / "out").exists()


def test_a_second_run_writes_nothing(tunec, tmp_path):
    tunec("compile", MIXED, "-o", tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*")}
    again = tunec("compile", MIXED, "-o", tmp_path)
    told = (
        "install what it imports on Python 3.11 to 3.14: "
        f"pip install -r {tmp_path}/requirements.txt\n"
        f"start it with: bash {tmp_path}/run.sh\n"
    )
    assert (again.code, again.err) == (0, told)
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*")}


def test_equal_specs_give_equal_bytes(tunec, tmp_path):
    tunec("compile", GLM, "-o", tmp_path / "one")
    tunec("compile", GLM, "-o", tmp_path / "two")
    names = files_below(tmp_path / "one")
    assert names == files_below(tmp_path / "two")
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_launch_script_can_be_run(tunec, tmp_path):
    tunec("compile", FIVE, "--target", "launch", "-o", tmp_path)
    mode = (tmp_path / "launch/launch.sh").stat().st_mode
    assert mode & stat.S_IXUSR


# ── --check ──────────────────────────────────────────────────────────────────────────────────────


def test_check_passes_on_what_compile_wrote(tunec, tmp_path):
    tunec("compile", MIXED, "-o", tmp_path)
    result = tunec("compile", MIXED, "-o", tmp_path, "--check")
    assert (result.code, result.out, result.err) == (0, "", "")


def test_check_names_what_differs_and_what_is_missing_and_writes_neither(tunec, tmp_path):
    tunec("compile", MIXED, "-o", tmp_path)
    changed = tmp_path / "huggingface/training_args.yaml"
    changed.write_text("learning_rate: 1.0\n", "utf-8")
    (tmp_path / "launch/launch.sh").unlink()
    result = tunec("compile", MIXED, "-o", tmp_path, "--check")
    assert result.code == 1
    assert "training_args.yaml: differs" in result.err
    assert "launch.sh: is missing" in result.err
    assert changed.read_text("utf-8") == "learning_rate: 1.0\n"
    assert not (tmp_path / "launch/launch.sh").exists()


def test_check_without_a_directory_is_wrong_usage(tunec):
    result = tunec("compile", MIXED, "--check")
    assert result.code == 2
    assert "-o" in result.err


# ── --set, --hardware, --target ──────────────────────────────────────────────────────────────────


def test_set_overrules_the_spec(tunec, tmp_path):
    tunec("compile", MIXED, "-o", tmp_path, "--set", "train.learning_rate=3e-4")
    text = (tmp_path / "huggingface/training_args.yaml").read_text("utf-8")
    assert "learning_rate: 0.0003" in text


def test_a_bad_set_points_into_the_command_line(tunec):
    result = tunec("compile", FIVE, "--target", "launch", "--set", "train.lerning_rate=1")
    assert result.code == 1
    assert "learning_rate" in result.err
    assert "command line" in result.err


def test_hardware_replaces_the_specs_own(tunec):
    one = tunec("compile", FIVE, "--target", "launch", "--hardware", "a100-80g-x1")
    many = tunec("compile", FIVE, "--target", "launch")
    assert one.code == many.code == 0
    assert "8" in many.out
    assert one.out != many.out


def test_unknown_hardware_has_near_names(tunec):
    result = tunec("compile", FIVE, "--target", "launch", "--hardware", "a101-80g-x8")
    assert result.code == 1
    assert "a100-80g" in result.err


def test_an_unknown_target_has_near_names(tunec):
    result = tunec("compile", FIVE, "--target", "hugingface")
    assert result.code == 2
    assert "huggingface" in result.err


def test_an_unsupported_version_is_refused(tunec):
    result = tunec("compile", MIXED, "--target", "huggingface@3.0")
    assert result.code in (1, 2)
    assert "4.40" in result.err


def test_a_version_that_is_none_is_refused(tunec):
    result = tunec("compile", FIVE, "--target", "huggingface@new")
    assert result.code == 2
    assert "new" in result.err


def test_a_spec_without_targets_says_which_there_are(tunec):
    result = tunec("compile", FIVE)
    assert result.code == 2
    assert "deepspeed" in result.err


def test_versions_are_dialects(tunec, tmp_path):
    tunec("compile", GLM, "--target", "huggingface@4.40.2", "-o", tmp_path / "old")
    tunec("compile", GLM, "--target", "huggingface@5.23", "-o", tmp_path / "new")
    old = (tmp_path / "old/huggingface/training_args.yaml").read_text("utf-8")
    new = (tmp_path / "new/huggingface/training_args.yaml").read_text("utf-8")
    assert "\nevaluation_strategy: steps" in old
    assert "\neval_strategy: steps" in new


# ── --format json ────────────────────────────────────────────────────────────────────────────────


def test_json_holds_every_file_and_diagnostic(tunec):
    result = tunec("compile", MIXED, "--format", "json")
    assert result.code == 0
    found = result.json
    assert set(found) == {"artifacts", "diagnostics"}
    assert [f"{each['target']}/{each['file']}" for each in found["artifacts"]] == [
        "huggingface/training_args.yaml",
        "huggingface/adapter_config.json",
        "huggingface/model_args.yaml",
        "huggingface/sft.yaml",
        "launch/launch.sh",
    ]
    for each in found["artifacts"]:
        assert set(each) == {"spec", "hardware", "target", "file", "text", "values"}
        if each["file"].endswith(".json"):
            assert json.loads(each["text"]) == each["values"]


def test_json_of_a_failure_is_json_too(tunec):
    result = tunec("compile", INFEASIBLE, "--format", "json")
    assert result.code == 1
    assert result.err == ""
    assert result.json["artifacts"] == []
    assert [each["id"] for each in result.json["diagnostics"]] == ["E0701"]


# ── what the disk refuses ────────────────────────────────────────────────────────────────────────


def test_a_directory_instead_of_a_spec(tunec, tmp_path):
    result = tunec("compile", tmp_path, "--target", "launch")
    assert result.code == 1
    assert "directory" in result.err


def test_a_missing_spec(tunec, tmp_path):
    result = tunec("compile", tmp_path / "nothing.yaml", "--target", "launch")
    assert result.code == 1
    assert "nothing.yaml" in result.err


@pytest.mark.parametrize(
    "content", [b"", b"\x00\xff\xfe", b"[1, 2", b"- a\n- b\n", b"&a [*a]", b"3"]
)
def test_a_file_that_is_no_spec(tunec, tmp_path, content):
    (tmp_path / "spec.yaml").write_bytes(content)
    result = tunec("compile", tmp_path / "spec.yaml", "--target", "launch")
    assert result.code == 1
    assert "error[E0" in result.err
    assert result.out == ""


def test_output_that_is_a_file(tunec, tmp_path):
    (tmp_path / "out").write_text("here first", "utf-8")
    result = tunec("compile", FIVE, "--target", "launch", "-o", tmp_path / "out")
    assert result.code == 2
    assert "cannot" in result.err
    assert (tmp_path / "out").read_text("utf-8") == "here first"


def test_an_artifacts_place_that_is_a_directory(tunec, tmp_path):
    (tmp_path / "launch/launch.sh").mkdir(parents=True)
    result = tunec("compile", FIVE, "--target", "launch", "-o", tmp_path)
    assert result.code == 2
    assert "launch.sh" in result.err
    assert files_below(tmp_path) == []


def test_nothing_is_left_when_a_file_cannot_be_written(tunec, tmp_path):
    """The second target's folder cannot be made, so the first one's files stay unwritten too."""
    (tmp_path / "launch").write_text("a file where a folder must be", "utf-8")
    result = tunec("compile", MIXED, "-o", tmp_path)
    assert result.code == 2
    assert files_below(tmp_path) == ["launch"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_output_that_may_not_be_written(tunec, tmp_path):
    tmp_path.chmod(0o500)
    result = tunec("compile", FIVE, "--target", "launch", "-o", tmp_path / "out")
    assert result.code == 2
    assert "ermission" in result.err


def test_every_spec_is_diagnosed_before_the_command_fails(tunec, tmp_path):
    (tmp_path / "bad.yaml").write_text("tunec: 1\nmodle: x\n", "utf-8")
    result = tunec("compile", tmp_path / "bad.yaml", INFEASIBLE, "--target", "launch")
    assert result.code == 1
    assert "modle" in result.err
    assert "E0701" in result.err


def test_all_examples_compile_together(tunec, tmp_path):
    names = ["minicpm-v-2_6-lora/spec", "llama-3.2-3b-mixed-gpus/spec", "glm-4v-9b-lora/x8"]
    result = tunec("compile", *(EXAMPLES / f"{name}.yaml" for name in names), "-o", tmp_path)
    assert result.code == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "minicpm-v-2_6-lora",
        "llama-3.2-3b-mixed",
        "glm-4v-9b-lora-x8",
    }
