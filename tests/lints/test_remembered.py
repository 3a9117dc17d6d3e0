"""What rules find in files is kept; only rules that ask for hardware are asked for each pair."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.small import SPEC

sys.path.insert(0, str(Path(__file__).parent))

from lint_asking import lint
from lint_pages import examples

from tunec.compiler.driver import plan
from tunec.compiler.fleet.emission import Emissions
from tunec.compiler.frontend.load import load_text
from tunec.compiler.gather import devices_of
from tunec.compiler.lints import lint as linting
from tunec.compiler.lints import remembered
from tunec.compiler.lints.environment import Environment
from tunec.compiler.lints.index import rules
from tunec.compiler.lints.rule import Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.telling import check_rule
from tunec.schemas.hardware.catalogue import cluster
from tunec.targets.registry import TARGETS

_OTHERS = [each for each in rules() if not each.hardware]


@pytest.fixture
def linted(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Every run that is linted, as it is linted."""
    runs: list[Run] = []
    check = linting.check
    monkeypatch.setattr(linting, "check", lambda run: runs.append(run) or check(run))
    return runs


def _on(name: str, run: Run) -> Run:
    """The same run of eight processes on a cluster of the catalogue."""
    found = cluster(name)
    there = replace(run.environment, cluster=found, devices=devices_of(found), world=8)
    return run.moved(there)


@pytest.mark.parametrize("rule", _OTHERS, ids=lambda each: each.name)
def test_a_rule_that_asks_for_no_hardware_finds_the_same_on_all(
    rule: Rule, linted: list[Run], tmp_path: Path
) -> None:
    for number, example in enumerate(examples(rule.name)):
        lint(tmp_path / str(number), example.files, example.arguments)
    assert linted
    for run in linted:
        found = [list(check_rule(rule, _on(name, run))) for name in ("t4-x1", "h100-sxm-x8")]
        assert found[0] == found[1]


def test_a_run_on_other_hardware_reads_no_file_again() -> None:
    run = Run((), Environment(), TARGETS)
    assert run.releases
    moved = run.moved(Environment(world=2))
    assert moved.releases is run.releases
    assert moved.world is not None
    assert moved.world.value == 2


def test_files_that_come_again_are_judged_by_rules_of_hardware_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged: list[str] = []

    def noted(rule: Rule, run: Run) -> Iterator[object]:
        judged.append(rule.name)
        return check_rule(rule, run)

    monkeypatch.setattr(remembered, "check_rule", noted)
    emissions, asked = Emissions(), TARGETS.resolve("deepspeed")
    planned = plan(load_text(SPEC), [asked])
    assert planned.plan is not None
    assert planned.facts is not None
    of = planned.facts, planned.plan
    for _ in range(2):
        files, _ = emissions.emit(SPEC, asked, of[1], of[0].versions, ("h",))
        emissions.objections(asked, files, *of)
    again = [name for name in set(judged) if judged.count(name) > 1]
    assert set(again) == {each.name for each in rules() if each.hardware} & set(judged)
    assert len(set(judged)) > 100
