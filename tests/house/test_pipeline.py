"""Passes keep their contract: each slot decided once, and nothing read that is not declared."""

from collections import Counter
from pathlib import Path

import pytest

from tunec.compiler.driver import run_passes
from tunec.compiler.frontend.load import load_spec
from tunec.compiler.ir.ledger import Definition, Rank
from tunec.compiler.ir.plan import Draft, build_group
from tunec.compiler.ir.slots import GROUPS, SLOTS
from tunec.compiler.passes.fit.fit import GROUPS as FIT
from tunec.compiler.passes.pipeline import PIPELINE
from tunec.compiler.resolve import resolve
from tunec.schemas.frozen import replace

ROOT = Path(__file__).parents[2]
SPECS = sorted((ROOT / "examples").glob("*/*.yaml"))


class Watched(Draft):
    """A draft that notes which groups are asked for."""

    asked: set[str]

    def _group(self, name):
        self.asked.add(name)
        return super()._group(name)


def watched(draft: Draft) -> Watched:
    return Watched(draft.groups, set())


def facts_of(path: Path):
    loaded = load_spec(path)
    assert loaded.spec is not None, loaded.diagnostics
    return resolve(loaded.spec, loaded.base)


def test_every_group_is_decided_by_exactly_one_pass():
    assert Counter(group for each in PIPELINE for group in each.decides) == Counter(GROUPS.keys())


def test_passes_have_names_of_their_own():
    assert len({each.name for each in PIPELINE}) == len(PIPELINE)


@pytest.mark.parametrize("each", PIPELINE, ids=lambda each: each.name)
def test_pass_reads_only_what_is_decided_before_it(each):
    before = PIPELINE[: PIPELINE.index(each)]
    assert set(each.reads) <= {group for earlier in before for group in earlier.decides}


@pytest.mark.parametrize("each", PIPELINE, ids=lambda each: each.name)
def test_contract_is_one_sentence(each):
    assert each.contract.endswith(".")
    assert len(each.contract) < 100


def reads_and_decisions(facts) -> dict[str, tuple[set[str], set[str]]]:
    """By pass: the groups it asks for, and the slots it decides."""
    found = {}
    draft = Draft({})
    for each in PIPELINE:
        seen = watched(draft)
        outcome = each.run(facts, seen)
        found[each.name] = (seen.asked, set(outcome.decisions))
        values = {path: facts.pinned(path, d.value) for path, d in outcome.decisions.items()}
        draft = draft.with_groups({g: build_group(g, values) for g in each.decides})
    return found


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_passes_read_and_decide_what_they_declare(path):
    found = reads_and_decisions(facts_of(path))
    for each in PIPELINE:
        asked, decided = found[each.name]
        assert asked <= set(each.reads), f"{each.name} reads {sorted(asked)}"
        assert decided == {p for p, slot in SLOTS.items() if slot.group in each.decides}


def test_every_declared_read_happens_somewhere():
    """A read that no example shows is a declaration that nothing tests, or one too many."""
    read: dict[str, set[str]] = {}
    for path in SPECS:
        for name, (asked, _) in reads_and_decisions(facts_of(path)).items():
            read.setdefault(name, set()).update(asked)
    unread = {each.name: set(each.reads) - read[each.name] for each in PIPELINE}
    assert {name: groups for name, groups in unread.items() if groups} == {}


class Told:
    """Facts of which nothing can be seen but some paths; and what is pinned."""

    def __init__(self, facts, paths):
        self._facts, self._paths = facts, paths

    def __getattr__(self, name):
        found = getattr(self._facts, name)
        if name in (*self._paths, "pins", "pinned"):
            return found
        below = [path.removeprefix(f"{name}.") for path in self._paths if path.startswith(name)]
        assert below, f"{name} is not among what the pass knows"
        return Told(found, below)


class Group:
    """A group of which nothing can be seen but some slots."""

    def __init__(self, name, group, slots):
        self._name, self._group, self._slots = name, group, slots

    def __getattr__(self, attribute):
        slot = f"{self._name}.{attribute.rstrip('_')}"
        assert slot in self._slots, f"{slot} is not among what the pass looks at"
        return getattr(self._group, attribute)


def looked_at(draft: Draft, each) -> Draft:
    """What a pass may see of a draft."""
    if not each.looks:
        return draft
    return Draft({name: Group(name, whole, each.looks) for name, whole in draft.groups.items()})


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_passes_know_only_what_they_declare(path):
    """What was decided is remembered by it."""
    facts, draft = facts_of(path), Draft({})
    for each in PIPELINE:
        outcome, groups = each.decide(facts, draft)
        if each.fact_inputs is not None:
            pins = {slot: pin for slot, pin in facts.pins.items() if slot in each.minded}
            told = each.run(
                Told(replace(facts, pins=pins), each.fact_inputs), looked_at(draft, each)
            )
            assert (told.values, told.diagnostics) == (outcome.values, outcome.diagnostics)
        draft = draft.with_groups(groups)


def test_what_fits_is_told_by_declared_facts_alone():
    before = PIPELINE[: next(n for n, each in enumerate(PIPELINE) if each.decides == FIT)]
    assert all(each.fact_inputs is not None for each in before)


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_stretches_decide_what_their_passes_do_one_by_one(path):
    facts = facts_of(path)
    together, ledger, said = run_passes(facts)
    seen: list[str] = []
    alone, each_ledger, each_said = run_passes(facts, lambda each, _: seen.append(each.name))
    assert seen == [each.name for each in PIPELINE]
    assert (together, said) == (alone, each_said)
    assert dict(ledger.entries) == dict(each_ledger.entries)
    assert list(ledger.entries) == list(each_ledger.entries)


def test_what_another_pin_decides_is_not_remembered():
    facts = facts_of(ROOT / "examples/five-lines/spec.yaml")
    each = next(each for each in PIPELINE if each.name == "choose-adapter")
    pinned = Definition("adapter.rank", 3, Rank.PIN, "spec", "")
    found = [
        each.decide(replace(facts, pins=pins), Draft({}))[1]["adapter"].rank
        for pins in (facts.pins, {**facts.pins, "adapter.rank": pinned}, facts.pins)
    ]
    assert found[0] == found[2] != found[1] == 3


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_decisions_are_of_their_slots_type_and_say_why(path):
    _, ledger, _ = run_passes(facts_of(path))
    for slot in SLOTS:
        winner = ledger.winner(slot)
        assert winner is not None, slot
        assert winner.reason, slot
        assert hash(winner.value) is not None
