"""What is reported if a target does not write a plan's objective: one fault, with who does."""

from collections.abc import Sequence
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.diagnostics.wording import joined
from tunec.compiler.ir.plan import Plan
from tunec.schemas.objective_facts import OBJECTIVES

_KIND: Final = "objective.kind"


def elsewhere(plan: Plan, slot: str) -> str:
    """The targets that write a decided value, if only few write the objective."""
    known = OBJECTIVES[plan.objective.kind].written_by if slot == _KIND else ()
    return joined(known, "or") if known else "another target"


def by_its_objective(plan: Plan, lost: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    """The faults of lost values, without those that follow from a lost objective.

    Such are its other slots, and what a head is that the objective brings.
    """
    if all(_slot(each) != _KIND for each in lost):
        return tuple(lost)
    brought = ("model.kind", "adapter.also_train") if OBJECTIVES[plan.objective.kind].scores else ()
    return tuple(each for each in lost if not _follows(_slot(each), brought))


def _slot(fault: Diagnostic) -> str:
    return fault.primary.path if fault.primary else ""


def _follows(slot: str, brought: Sequence[str]) -> bool:
    return slot != _KIND and (slot.startswith("objective.") or slot in brought)
