"""The decisions before the search, and what the search would find under other limits."""

from typing import Any, Final

from tunec.compiler.facts import Facts
from tunec.compiler.ir.plan import Draft
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.passes.fit.fit import GROUPS, problem_of
from tunec.compiler.passes.fit.search import search
from tunec.compiler.passes.pipeline import PIPELINE
from tunec.schemas.frozen import replace

_BEFORE: Final = PIPELINE[: next(at for at, each in enumerate(PIPELINE) if each.decides == GROUPS)]
"""The passes before the search, whose decisions it does not change."""


def decided(facts: Facts) -> tuple[Facts, Draft] | None:
    """The decisions of the passes before the search; None if one of them reports an error."""
    draft = Draft({})
    for each in _BEFORE:
        facts = facts.informed(draft)
        outcome, groups = each.decide(facts, draft)
        if any(fault.severity == "error" for fault in outcome.diagnostics):
            return None
        draft = draft.with_groups(groups)
    return facts.informed(draft), draft


def unbound_seconds(facts: Facts) -> float | None:
    """Seconds for each sample if devices and hosts had unlimited memory."""
    found = decided(facts)
    if found is None:
        return None
    problem = replace(problem_of(*found), budget=2**60, host_budget=None)
    best = search(problem).best
    return None if best is None else best.cost


def unpinned(facts: Facts, path: str) -> Any:
    """The value that a slot would get without its pin; None if nothing fits without it either."""
    pins = {slot: pin for slot, pin in facts.pins.items() if slot != path}
    found = decided(replace(facts, pins=pins))
    best = search(problem_of(*found)).best if found else None
    if found is None or best is None:
        return None
    slot = SLOTS[path]
    group = getattr(best.layout, slot.group) if slot.group in GROUPS else None
    return getattr(group or getattr(found[1], slot.group), slot.attribute)
