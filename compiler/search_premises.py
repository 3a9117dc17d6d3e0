"""What the passes decide before the search, and what the search finds under another bound."""

from typing import Any, Final

from tunec.compiler.facts import Facts
from tunec.compiler.ir.plan import Draft
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.passes.fit.fit import GROUPS, problem_of
from tunec.compiler.passes.fit.search import search
from tunec.compiler.passes.pipeline import PIPELINE
from tunec.schemas.frozen import replace

_BEFORE: Final = PIPELINE[: next(at for at, each in enumerate(PIPELINE) if each.decides == GROUPS)]
"""The passes that decide what the search leaves as it is."""


def decided(facts: Facts) -> tuple[Facts, Draft] | None:
    """What the passes before the search decide; None where one finds an error."""
    draft = Draft({})
    for each in _BEFORE:
        facts = facts.informed(draft)
        outcome, groups = each.decide(facts, draft)
        if any(fault.severity == "error" for fault in outcome.diagnostics):
            return None
        draft = draft.with_groups(groups)
    return facts.informed(draft), draft


def unbound_seconds(facts: Facts) -> float | None:
    """Seconds for a sample if devices and hosts had memory without end."""
    found = decided(facts)
    if found is None:
        return None
    problem = replace(problem_of(*found), budget=2**60, host_budget=None)
    best = search(problem).best
    return None if best is None else best.cost


def unpinned(facts: Facts, path: str) -> Any:
    """The value that a slot gets without its pin; None where nothing fits then either."""
    pins = {slot: pin for slot, pin in facts.pins.items() if slot != path}
    found = decided(replace(facts, pins=pins))
    best = search(problem_of(*found)).best if found else None
    if found is None or best is None:
        return None
    slot = SLOTS[path]
    group = getattr(best.layout, slot.group) if slot.group in GROUPS else None
    return getattr(group or getattr(found[1], slot.group), slot.attribute)
