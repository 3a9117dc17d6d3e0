"""What rules find in files is kept; only rules that ask for hardware are asked for each pair."""

from collections.abc import Iterator

import pytest
from tests.small_spec import SPEC

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.driver import plan
from tunec.compiler.fleet.emission import Emissions
from tunec.compiler.frontend.load import load_text
from tunec.compiler.lints import emission
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.environment import Environment
from tunec.compiler.lints.index import rules
from tunec.compiler.lints.rule import Finding, Rule, findings_of, rule
from tunec.targets.registry import TARGETS


def test_a_run_on_other_hardware_reads_no_file_again() -> None:
    run = LintContext((), Environment(), TARGETS)
    assert run.releases
    moved = run.moved(Environment(world=2))
    assert moved.releases is run.releases
    assert moved.world is not None
    assert moved.world.value == 2


def test_files_that_come_again_are_judged_by_rules_of_hardware_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged: list[str] = []

    def noted(rule: Rule, run: LintContext) -> Iterator[Diagnostic]:
        judged.append(rule.name)
        return findings_of(rule, run)

    monkeypatch.setattr(emission, "findings_of", noted)
    emissions, asked = Emissions(), TARGETS.resolve("deepspeed")
    planned = plan(load_text(SPEC), [asked])
    assert planned.plan is not None
    assert planned.facts is not None
    of = planned.facts, planned.plan
    for _ in range(2):
        files, _ = emissions.emit(SPEC, asked, of[1], of[0].versions, ("h",))
        emissions.objections(asked, files, *of)
    again = {name for name in judged if judged.count(name) > 1}
    assert again == {each.name for each in rules() if each.hardware} & set(judged)
    assert again, "rules of hardware are asked of these files"
    assert again < set(judged), "and others, once"


def test_a_slot_that_its_file_leaves_out_is_asked_of_each_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The files of two plans are equal, and a rule reads a slot in which the plans differ."""

    @rule("warning", "save", consumers=())
    def gathered(run: LintContext) -> Iterator[Finding]:
        yield Finding(f"gathered: {run.value('zero.gather_on_save')}", ())

    monkeypatch.setattr(emission, "asked_of", lambda _: (gathered,))
    emissions, asked = Emissions(), TARGETS.resolve("deepspeed")
    planned = plan(load_text(SPEC), [asked])
    assert planned.plan is not None
    assert planned.facts is not None
    assert planned.plan.zero.stage == 0, "so that the row of the slot writes nothing"
    texts, told = [], []
    for is_gathered in (False, True):
        decided = planned.plan.with_values({"zero.gather_on_save": is_gathered})
        files, _ = emissions.emit(SPEC, asked, decided, planned.facts.versions, ("h",))
        found = emissions.objections(asked, files, planned.facts, decided)
        texts.append([each.text for each in files])
        told += [each.message for each in found]
    assert texts[0] == texts[1]
    assert told == ["gathered: False", "gathered: True"]
