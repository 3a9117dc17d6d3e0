"""Nothing in the house is half added, and what is half added is told with what to write."""

from pathlib import Path

import docs.generate
import pytest
from docs import gaps

from tunec.compiler.frontend.load import load_spec
from tunec.compiler.ir.plan import Draft
from tunec.compiler.ir.slots import GROUPS, SLOTS
from tunec.compiler.passes.contract import SlotNotDecided
from tunec.compiler.passes.pipeline import PIPELINE
from tunec.compiler.resolve import resolve
from tunec.compiler.target import Cannot
from tunec.schemas.frozen import replace
from tunec.targets.registry import TARGETS


def test_nothing_is_unfinished():
    assert "".join(map(str, gaps.gaps())) == ""


def test_a_gap_stops_the_generator_before_it_writes(monkeypatch, capsys, tmp_path):
    gap = gaps.Gap("compiler/here.py", "something lacks", "write it")
    monkeypatch.setattr(docs.generate, "gaps", lambda: (gap,))
    monkeypatch.setattr(docs.generate, "derived", lambda: pytest.fail("nothing is derived"))
    assert docs.generate.main([], tmp_path) == 1
    assert capsys.readouterr().err == "compiler/here.py: something lacks\n  write it\n"


# ── slots ────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def new_slot(monkeypatch):
    """A slot of the group `runtime` that nobody knows."""
    slot = replace(SLOTS["runtime.seed"], path="runtime.color", attribute="color")
    monkeypatch.setattr(gaps, "SLOTS", {**SLOTS, slot.path: slot})
    return slot.path


def test_a_slot_that_no_target_speaks_of_is_told_with_every_silent_target(new_slot):
    (gap,) = gaps.slots()
    assert (
        gap.what
        == f"the slot `runtime.color` is neither written nor refused by {', '.join(TARGETS)}"
    )
    assert '`"runtime.color": Cannot(reason)`' in gap.remedy


def test_a_slot_that_some_releases_cannot_say_is_told_with_these(monkeypatch):
    target = TARGETS["deepspeed"]
    rows = tuple(
        replace(entry, since=target.latest) if "zero.stage" in entry.slots else entry
        for entry in target.files[0].entries
    )
    late = replace(target, files=(replace(target.files[0], entries=rows), *target.files[1:]))
    monkeypatch.setattr(gaps, "TARGETS", {"deepspeed": late})
    (gap,) = gaps.slots()
    assert gap.what.startswith(
        "the slot `zero.stage` is neither written nor refused by deepspeed@0.1"
    )
    assert not gap.what.endswith(target.latest)


def test_a_target_that_speaks_of_no_slot_is_told(monkeypatch):
    target = TARGETS["deepspeed"]
    odd = replace(target, cannot={**target.cannot, "zero.stag": Cannot("none")})
    monkeypatch.setattr(gaps, "TARGETS", {"deepspeed": odd})
    assert [gap.what for gap in gaps.slots()] == [
        "deepspeed names the slot `zero.stag`, which does not exist"
    ]


def test_a_slot_that_its_pass_does_not_decide_is_told_with_the_pass(new_slot):
    (gap,) = gaps.decisions()
    assert str(gap) == (
        "compiler/passes/set_runtime.py: the pass set-runtime decides the group of the slot "
        '`runtime.color`, and not the slot\n  add `scribe.say("runtime.color", value, reason)`\n'
    )


def test_a_slot_that_its_pass_does_not_decide_stops_the_first_plan():
    loaded = load_spec(Path(gaps.ROOT) / "examples/five-lines/spec.yaml")
    facts = resolve(loaded.spec, loaded.base)
    first = PIPELINE[0]

    def silent(facts, draft):
        outcome = first.run(facts, draft)
        values = {path: to for path, to in outcome.values.items() if path != "model.family"}
        return replace(outcome, values=values, groups=None)

    with pytest.raises(
        SlotNotDecided, match=r"resolve-model decides .* slot model\.family, and not"
    ):
        replace(first, run=silent, fact_inputs=None).decide(facts, Draft({}))


# ── passes ───────────────────────────────────────────────────────────────────────────────────────


def test_a_group_that_no_pass_decides_is_told(monkeypatch):
    monkeypatch.setattr(gaps, "PIPELINE", PIPELINE[:-1])
    assert {gap.what for gap in gaps.groups()} == {
        f"the slots of `{group}` are decided by no pass" for group in PIPELINE[-1].decides
    }


def test_a_group_that_no_plan_holds_is_told(monkeypatch):
    monkeypatch.setattr(gaps, "GROUPS", {**GROUPS, "color": GROUPS["job"]})
    first, second = gaps.groups()
    assert str(first) == (
        "compiler/ir/plan.py: no plan holds the group `color`\n"
        "  add `color: Job` to `Plan`; to `Draft` if a pass reads it\n"
    )
    assert second.what == "the slots of `color` are decided by no pass"


def test_a_pass_that_does_not_run_is_told(monkeypatch):
    monkeypatch.setattr(gaps, "PIPELINE", PIPELINE[1:])
    assert [gap.what for gap in gaps.passes()] == ["`resolve_model` is in no pipeline"]


def test_a_pass_without_a_contract_is_told(monkeypatch):
    def silent(facts, draft):
        return PIPELINE[0].run(facts, draft)

    monkeypatch.setattr(gaps, "_pass_functions", lambda _: iter(()))
    monkeypatch.setattr(gaps, "PIPELINE", (replace(PIPELINE[0], run=silent),))
    (gap,) = gaps.passes()
    assert gap[:2] == ("compiler/passes/silent.py", "it has no contract")


# ── folders and pages ────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def house(tmp_path, monkeypatch) -> Path:
    """An empty house beside ours."""
    monkeypatch.setattr(gaps, "ROOT", tmp_path)
    return tmp_path


def written(file: Path, text: str = "") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")


def test_a_target_that_is_not_registered_is_told(house):
    written(house / "targets/megatron_lm/target.py")
    (gap,) = gaps.targets()
    assert str(gap) == (
        "targets/registry.py: `megatron_lm` is not registered\n"
        '  add `"megatron-lm": "tunec.targets.megatron_lm.target"` to its table\n'
    )


def test_a_code_without_a_page_is_told_with_who_reports_it(house):
    written(house / "compiler/some.py", 'error("E0999")\nerror("E0301")\n')
    (gap,) = gaps.codes()
    assert gap.place == "compiler/diagnostics/pages/E0999.md"
    assert gap.what == "compiler/some.py reports E0999, which has no page"


def test_a_code_of_an_area_without_a_name_is_told(monkeypatch):
    monkeypatch.setattr(gaps, "AREAS", {k: v for k, v in gaps.AREAS.items() if k != "E05"})
    assert {gap.remedy for gap in gaps.codes()} == {'add "E05" to AREAS'}


def test_a_rule_without_a_page_is_told(house, monkeypatch):
    written(house / "compiler/lints/checks/training_step/some.py")
    monkeypatch.setattr(gaps, "_rules_of", lambda _: ("some-bad-thing",))
    monkeypatch.setattr(gaps, "rule_names", lambda: ())
    (gap,) = gaps.rules()
    assert gap.place == "compiler/lints/checks/training_step/some-bad-thing.md"
    assert gap.what == "the rule `some-bad-thing` has no page, so that nothing asks it"


def test_a_page_without_a_rule_is_told(monkeypatch):
    names = (*gaps.rule_names(), "no-rule-of-this-name")
    monkeypatch.setattr(gaps, "rule_names", lambda: names)
    assert [gap.what for gap in gaps.rules()] == ["the page `no-rule-of-this-name.md` has no rule"]
