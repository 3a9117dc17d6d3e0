"""What surrounds a command is not as it should be: streams, locales, names, disks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.shell import FIVE, files_below
from tests.tables import rows, table

TABLES = table(__file__, FIVE=FIVE)

TUNEC = f'"{sys.executable}" -m tunec'


def shell(line, **options):
    """A line for bash, with `tunec` standing for the module."""
    line = line.replace("tunec ", f"{TUNEC} ")
    return subprocess.run(["bash", "-c", line], capture_output=True, check=False, **options)


# ── streams ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "line",
    ["tunec init | tunec plan /dev/stdin", "tunec init | tunec plan -", "tunec plan <(tunec init)"],
)
def test_a_spec_may_come_from_another_program(line, tmp_path):
    done = shell(line, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\nfits: " in done.stdout
    assert "next    " not in done.stdout, "a stream is not read twice"


def test_paths_in_such_a_spec_start_from_the_working_directory(tmp_path):
    (tmp_path / "base.yaml").write_text(Path(FIVE).read_text("utf-8"), "utf-8")
    done = shell("echo 'extends: base.yaml' | tunec plan -", text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_stream_that_is_closed_is_told():
    done = shell("tunec plan - <&-", text=True)
    assert done.returncode == 1
    assert "E0201" in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_a_closed_output_stream_is_no_bug(closed):
    done = shell(f"tunec plan {FIVE} --set data.sequnce=1 {closed}", text=True)
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_result_that_cannot_be_written_is_told_and_no_bug():
    done = shell(f"tunec lint {FIVE} > /dev/full", text=True)
    assert done.returncode == 2
    assert done.stderr == "tunec lint: cannot write to stdout: No space left on device\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_results_are_utf_8_whatever_the_locale(encoding):
    line = f"tunec explain {FIVE} zero.stage"
    plain = shell(line, env={"PATH": os.environ["PATH"], "PYTHONUTF8": "1"})
    other = shell(line, env={"PATH": os.environ["PATH"], "PYTHONIOENCODING": encoding})
    assert (other.returncode, other.stderr) == (0, b"")
    assert other.stdout == plain.stdout
    assert "└─" in other.stdout.decode()


def test_a_file_name_that_is_no_text_is_shown(tmp_path):
    name = os.fsencode(tmp_path) + b"/b\xff.yaml"
    Path(os.fsdecode(name)).write_text("x", "utf-8")
    run = [sys.executable, "-m", "tunec", "plan", name, "--format", "json"]
    done = subprocess.run(run, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (1, b"")
    assert b"E0303" in done.stdout


# ── files ────────────────────────────────────────────────────────────────────────────────────────


def test_a_link_in_a_circle_is_not_offered_as_itself(tunec, tmp_path):
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    result = tunec("plan", tmp_path / "loop.yaml")
    assert result.code == 1
    assert "its symbolic links are broken" in result.err
    assert "did you mean" not in result.err


def test_an_empty_spec_is_sent_to_init(tunec, tmp_path):
    (tmp_path / "empty.yaml").touch()
    assert "`tunec init` prints a spec" in tunec("plan", tmp_path / "empty.yaml").err


def test_a_full_disk_names_the_file_and_leaves_nothing(tunec, tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tunec.compiler.writing.os.fsync", full)
    result = tunec("compile", FIVE, "--target", "deepspeed", "-o", tmp_path)
    assert result.code == 2
    assert f"cannot write {tmp_path / 'deepspeed/ds_config.json'}: No space left" in result.err
    assert files_below(tmp_path) == []


def test_what_is_mended_keeps_its_link_and_its_permissions(tunec, tmp_path):
    real, link = tmp_path / "real.json", tmp_path / "ds_config.json"
    real.write_text('{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": "1.0"}', "utf-8")
    real.chmod(0o600)
    link.symlink_to("real.json")
    tunec("lint", link, "--fix")
    assert '"gradient_clipping": 1' in real.read_text("utf-8")
    assert (link.is_symlink(), real.stat().st_mode & 0o777) == (True, 0o600)


# ── arguments ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "name", ["", "a100-80g-x99999999999", "h100-x8-n99999999", "p100-x-1", "p100-x0"]
)
def test_hardware_that_cannot_be_is_unknown(tunec, name):
    result = tunec("plan", FIVE, "--hardware", name)
    assert result.code == 1
    assert f"no hardware is called `{name}`" in result.err


@pytest.mark.parametrize(*rows(__file__, "test_wrong_usage_says_what_was_meant", FIVE=FIVE))
def test_wrong_usage_says_what_was_meant(tunec, arguments, said):
    result = tunec(*arguments)
    assert (result.code, result.out) == (2, "")
    assert said in result.err


def test_each_hardware_has_a_directory(tunec, tmp_path):
    named = ("--hardware", "a100-80g-x8", "--hardware", "v100-32g-x4")
    assert tunec("compile", FIVE, *named, "--target", "launch", "-o", tmp_path).code == 0
    folders = {name.split("/")[0] for name in files_below(tmp_path)}
    assert folders == {"a100-80g-x8", "v100-32g-x4"}
    twice = tunec("compile", FIVE, *named[:2], *named[:2], "--target", "launch", "-o", tmp_path)
    assert twice.code == 2
    assert twice.err.endswith("tunec compile: --hardware names 'a100-80g-x8' twice\n")


def test_json_of_an_explanation_without_a_plan_is_json(tunec, tmp_path):
    (tmp_path / "spec.yaml").write_text("tunec: 1\n", "utf-8")
    result = tunec("explain", tmp_path / "spec.yaml", "zero.stage", "--format", "json")
    assert (result.code, result.err) == (1, "")
    assert result.json["value"] is None
    assert {each["id"] for each in result.json["diagnostics"]} == {"E0302"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("schema",),
        ("init",),
        ("completion", "bash"),
        ("report", FIVE),
        ("explain", FIVE, "zero.stage"),
        ("fleet", "none.yaml", "-o", "build"),
        ("diff", FIVE, "none.yaml"),
        ("lint", "none.yaml"),
    ],
    ids=lambda each: each[0],
)
def test_every_command_speaks_json(tunec, arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = tunec(*arguments, "--format", "json")
    assert result.code == (1 if "none.yaml" in arguments else 0)
    assert (result.err, bool(result.json)) == ("", True)


def test_sides_that_are_not_there_are_told_as_any_file(tunec, tmp_path):
    result = tunec("diff", FIVE, tmp_path / "none.yaml")
    assert (result.code, result.out) == (1, "")
    assert "there is no such file" in result.err
    unknown = tunec("diff", "no-such-revision..")
    assert (unknown.code, unknown.out) == (2, "")
    assert unknown.err == "tunec diff: cannot compare: there is no revision 'no-such-revision'\n"


def test_a_fleet_whose_folder_is_a_file_is_told(tunec, tmp_path):
    (tmp_path / "taken").touch()
    (tmp_path / "spec.yaml").write_text(Path(FIVE).read_text("utf-8"), "utf-8")
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(
        "fleet: 1\nspecs: spec.yaml\nclusters: [p100-x2]\ntargets: [launch]\n", "utf-8"
    )
    result = tunec("fleet", fleet, "-o", tmp_path / "taken")
    assert (result.code, result.out) == (2, "")
    assert f"cannot build in {tmp_path / 'taken'}" in result.err


def test_what_cannot_be_verified_says_why(tunec, tmp_path):
    result = tunec("verify", tmp_path / "none.yaml")
    assert (result.code, result.out) == (1, "")
    assert "there is no such file" in result.err


def test_a_node_of_many_needs_as_much_memory_as_one_alone(tunec):
    """Each node has its own host, which holds its own ranks only."""
    alike = ("--set", "pin={batch.micro: 1}")
    one, many = (
        tunec("plan", FIVE, "--hardware", name, *alike, "--format", "json").json["memory"]["host"]
        for name in ("h100-x8", "h100-x8-n8")
    )
    assert many["peak_bytes"] == one["peak_bytes"] > 0


# ── numbers and names that are too long ──────────────────────────────────────────────────────────

DIGITS = "1" * 5000


@pytest.mark.parametrize(*rows(__file__, "test_what_no_program_takes_is_told", FIVE=FIVE))
def test_what_no_program_takes_is_told(line, code, tmp_path):
    long = DIGITS[:311]
    texts = {
        "ds.json": f'{{"train_batch_size": {long}, "gradient_accumulation_steps": 0}}',
        "launch.sh": f"deepspeed --num_gpus 99999999999 train.py --deepspeed ds.json --x {long}\n",
        "args.yaml": f"output_dir: o\nmax_steps: {long}\nlogging_steps: 0\n",
        "adapter_config.json": '{"peft_type": "LORA", "r": NaN, "target_modules": ["q_proj"]}',
        "cookbook.sh": "python finetuning.py --model_name m/x --dataset my_dataset\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, "utf-8")
    done = shell(line, text=True, cwd=tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert len(done.stderr) < 20_000


# ── characters that move a terminal ──────────────────────────────────────────────────────────────

ODD = "a\x1b[31m\x07\x7f\u0085\u202eb"


@pytest.mark.parametrize("form", ["text", "json", "sarif", "github"])
def test_what_a_file_says_moves_no_terminal(form, tmp_path):
    text = json.dumps({ODD: 1, "train_batch_size": ODD, "bf16": {ODD: [ODD]}}, ensure_ascii=True)
    (tmp_path / "ds.json").write_text(text, "utf-8")
    done = shell(f"tunec lint ds.json --format {form}", text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert_still(done.stdout + done.stderr)


@pytest.mark.parametrize("line", TABLES["test_what_the_command_line_says_moves_no_terminal"])
def test_what_the_command_line_says_moves_no_terminal(line, tmp_path):
    line = line.replace("$ODD", "'" + ODD + "'")
    assert_still("".join((done := shell(line, text=True, cwd=tmp_path)).stdout + done.stderr))


def assert_still(text):
    assert [each for each in text if ord(each) in range(0x7F, 0xA0)] == []
    assert not set(text) & {chr(each) for each in (*range(9), *range(11, 32), 0x202E)}
