"""`tunec report`, and which releases a run has: the spec's, its hardware's, or a target name's."""

from pathlib import Path

import pytest
from packaging.version import Version
from tests.cli.shell import FIVE, INFEASIBLE

import tunec as library
from tunec.compiler.requirements import together
from tunec.targets.axolotl.packages import installed_releases
from tunec.targets.registry import Targets

CLUSTER = """\
name: ours
nodes:
  - accelerators: [{device: a100-sxm4-80g, count: 4}]
    host: {memory: 500GiB, cores: 64}
software: {transformers: "4.40.2", deepspeed: "0.14.5"}
"""
resolve = Targets().resolve
OLD, NEW = "evaluation_strategy:", "eval_strategy:"


@pytest.fixture
def cluster(tmp_path):
    file = tmp_path / "ours.yaml"
    file.write_text(CLUSTER, "utf-8")
    return file


def arguments_in(folder: Path) -> str:
    return (folder / "huggingface/training_args.yaml").read_text("utf-8")


def test_the_hardwares_software_decides_the_dialect(tunec, cluster, tmp_path):
    out = tmp_path / "out"
    result = tunec("compile", FIVE, "--hardware", cluster, "--target", "huggingface", "-o", out)
    assert result.code == 0, result.err
    assert OLD in arguments_in(out)
    compiled = library.compile(FIVE, hardware=str(cluster), targets=["huggingface"], output=out)
    texts = {each.name: each.text for each in compiled.artifacts["huggingface"]}
    assert texts["training_args.yaml"] == arguments_in(out)


def test_the_spec_overrules_its_hardware_and_a_targets_name_both(tunec, cluster, tmp_path):
    newer = ("--set", 'software.transformers="4.57.6"')
    of_spec = (*newer, "--target", "huggingface")
    of_name = (*newer, "--target", "huggingface@4.40.2")
    for options, key in ((of_spec, NEW), (of_name, OLD)):
        result = tunec("compile", FIVE, "--hardware", cluster, *options, "-o", tmp_path / "out")
        assert result.code == 0, result.err
        assert key in arguments_in(tmp_path / "out")


def test_each_cluster_of_a_fleet_has_its_own_releases(tunec, cluster, tmp_path):
    (tmp_path / "five.yaml").write_text(Path(FIVE).read_text("utf-8"), "utf-8")
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(
        "fleet: 1\nspecs: five.yaml\nclusters: [a100-80g-x8, ours.yaml]\ntargets: [huggingface]\n"
    )
    result = tunec("fleet", fleet, "-o", tmp_path / "build")
    assert result.code == 0, result.err
    assert NEW in arguments_in(tmp_path / "build/five/a100-80g-x8")
    assert OLD in arguments_in(tmp_path / "build/five/ours")


@pytest.mark.parametrize(
    "targets",
    [
        ("huggingface@4.44", "huggingface@5.23"),
        ("huggingface@4.44", "glm4@4.40"),
        ("axolotl", "llamafactory"),  # transformers 5.16.1 alone, and 5.6.0 at most
    ],
)
def test_one_run_has_one_release_of_a_program(tunec, tmp_path, targets):
    options = [part for target in targets for part in ("--target", target)]
    result = tunec("compile", FIVE, *options, "-o", tmp_path / "out")
    assert result.code == 1
    assert "E0909" in result.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("order", [1, -1])
def test_what_a_trainer_brings_is_what_the_other_targets_write_for(order):
    named = ("axolotl@0.19.0", "deepspeed", "huggingface")[::order]
    asked = {target.name: str(version) for target, version in together(resolve, named, {})}
    brings = installed_releases(Version("0.19.0"))
    assert asked["deepspeed"] == brings["deepspeed"]
    assert asked["huggingface"] == brings["transformers"]
    said = together(resolve, named, {"deepspeed": "0.17.6"})
    assert "0.17.6" in {str(version) for target, version in said if target.name == "deepspeed"}


def test_a_release_that_one_target_names_holds_for_the_others(tunec, tmp_path):
    options = ("--target", "huggingface", "--target", "deepspeed@0.15", "--target", "glm4@4.44.2")
    found = tunec("plan", FIVE, *options, "--format", "json").json["diagnostics"]
    assert "E0909" not in {each["id"] for each in found}


@pytest.mark.parametrize("target", ["huggingface@3.0", "deepspeed@99"])
def test_a_plan_for_a_release_that_nobody_knows_is_refused(tunec, target):
    result = tunec("plan", FIVE, "--target", target)
    assert (result.code, result.out) == (1, "")
    assert "E0902" in result.err


def test_page_goes_to_the_file_or_to_stdout(tunec, tmp_path):
    result = tunec("report", FIVE, "-o", tmp_path / "report.html")
    assert (result.code, result.out, result.err) == (0, "", "")
    text = (tmp_path / "report.html").read_text("utf-8")
    assert text.startswith("<!doctype html>")
    assert tunec("report", FIVE).out == tunec("report", FIVE, "-o", "-").out == text


def test_a_spec_that_does_not_fit_has_a_page_and_exit_code_1(tunec, tmp_path):
    result = tunec("report", INFEASIBLE, "-o", tmp_path / "report.html")
    assert result.code == 1
    assert "E0701" in result.err
    assert "there is no plan" in (tmp_path / "report.html").read_text("utf-8")


def test_page_of_a_spec_named_in_full_does_not_say_where_it_lies(tunec, tmp_path):
    spec = tmp_path / "a & b" / "spec.yaml"
    spec.parent.mkdir()
    spec.write_text(Path(INFEASIBLE).read_text("utf-8"), "utf-8")
    page = tunec("report", spec).out
    assert str(tmp_path) not in page
    assert "spec.yaml:" in page


def test_overrides_and_policies_are_in_the_page(tunec, tmp_path):
    (tmp_path / "policy.yaml").write_text(
        "policy: 1\nrules:\n  - name: no-adamw\n    because: we say so\n"
        "    require: {optimizer.name: {not: adamw}}\n",
        "utf-8",
    )
    result = tunec(
        *("report", FIVE, "--hardware", "h100-sxm-x8", "--set", "batch.global=64"),
        *("--policy", tmp_path / "policy.yaml"),
    )
    assert result.code == 1
    assert "h100-sxm" in result.out
    assert "64 samples" in result.out
    assert "no-adamw" in result.out
    assert "we say so" in result.out


@pytest.mark.parametrize("options", [[], ["--hardware", "h100-sxm-x8"]])
def test_a_directory_has_to_be_a_tree(tunec, tmp_path, options):
    result = tunec("report", tmp_path, *options)
    assert (result.code, result.out) == (2, "")
    assert ("holds no tunec.lock" in result.err) == (not options)


def test_a_tree_has_a_page(tunec, tmp_path):
    (tmp_path / "spec.yaml").write_text(Path(FIVE).read_text("utf-8"), "utf-8")
    text = "fleet: 1\nspecs: spec.yaml\nclusters: [a100-80g-x8, t4-x1]\ntargets: [deepspeed]\n"
    (tmp_path / "fleet.yaml").write_text(text, "utf-8")
    tunec("fleet", tmp_path / "fleet.yaml", "-o", tmp_path / "build")
    result = tunec("report", tmp_path / "build")
    assert result.code == 0
    assert "Fleet build" in result.out
    assert all(f">{name}</th>" in result.out for name in ("a100-80g-x8", "t4-x1"))
