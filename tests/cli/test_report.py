"""`tunec report`: where the page goes, what the exit code says, what cannot be shown."""

from pathlib import Path

import pytest
from tests.cli.shell import FIVE, INFEASIBLE


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
