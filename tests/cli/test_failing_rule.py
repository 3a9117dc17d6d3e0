"""A rule that raises on the files that a command writes ends nothing, and the exit code tells."""

import json
import shutil
from pathlib import Path

import pytest
from tests.cli.shell import FIVE, Shell

from tunec.compiler.lints import emission, lint
from tunec.compiler.lints import rule as rules
from tunec.compiler.lints.rule import rule

SAID = "tunec failed to check this: ZeroDivisionError: no number"


@rule("error", "parse", consumers=())
def few_numbers(run):
    yield from ()
    raise ZeroDivisionError("no number")


@pytest.fixture
def failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command asks one rule more; its failure is told, and not raised as in other tests."""
    monkeypatch.setattr(rules, "failure", rules.failure.__wrapped__)  # type: ignore[attr-defined]
    for module in (emission, lint):
        known = module.rules_for
        monkeypatch.setattr(
            module, "rules_for", lambda *of, known=known: (few_numbers, *known(*of))
        )


@pytest.fixture
def files(tmp_path: Path, tunec: Shell) -> Path:
    """Files of a run, which no rule has failed on."""
    assert tunec("compile", FIVE, "--target", "huggingface", "-o", tmp_path / "in").code == 0
    return tmp_path / "in/huggingface/training_args.yaml"


COMMANDS = (
    ("compile", FIVE, "--target", "huggingface", "-o", "out"),
    ("plan", FIVE, "--target", "huggingface"),
    ("translate", "FILES", "--to", "huggingface", "--world-size", "8", "-o", "out"),
)


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each[0])
def test_it_is_named_and_the_rest_goes_on(
    command, form, files, tunec, tmp_path, monkeypatch, request
):
    monkeypatch.chdir(tmp_path)
    words = [str(files) if each == "FILES" else each for each in command]
    assert tunec(*words).code == 0, "nothing is wrong but the rule"
    shutil.rmtree("out", ignore_errors=True)
    request.getfixturevalue("failed")
    done = tunec(*words, "--format", form)
    assert done.code == 70, done.err
    if form == "json":
        told = [each for each in done.json["diagnostics"] if each["id"] == "few-numbers"]
        assert [each["message"] for each in told] == [SAID]
    else:
        assert f"warning[few-numbers]: {SAID}" in done.err
    if "-o" in words:
        assert any(Path("out").rglob("*.yaml")), "what the other rules accept is written"


def test_a_fleet_says_so_until_the_pair_was_checked(tmp_path, tunec, failed):
    shutil.copy(FIVE, tmp_path / "spec.yaml")
    text = "fleet: 1\nspecs: spec.yaml\nclusters: [a100-80g-x8]\ntargets: [huggingface]\n"
    (tmp_path / "fleet.yaml").write_text(text, "utf-8")
    command = ("fleet", tmp_path / "fleet.yaml", "-o", tmp_path / "build")
    first, second = tunec(*command), tunec(*command, "--format", "json")
    assert (first.code, second.code) == (70, 70), first.err + second.err
    assert SAID in first.err
    assert "few-numbers" in second.err
    (row,) = second.json
    assert (row["fits"], row["unchecked"]) == (True, ["few-numbers"])
    assert any((tmp_path / "build").rglob("training_args.yaml"))


def test_a_baseline_holds_no_silent_failure(tmp_path, tunec, failed):
    (tmp_path / "ds.json").write_text(json.dumps({"zero_optimization": {"stage": 2}}), "utf-8")
    baseline = tmp_path / "base.json"
    done = tunec("lint", tmp_path / "ds.json", "--baseline", baseline, "--write-baseline")
    assert done.code == 70
    assert baseline.exists()
