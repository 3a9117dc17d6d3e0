"""The values of a plan that the user set, and where they were set."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tunec.compiler.driver import Planned
from tunec.compiler.ir.ledger import Definition, Rank
from tunec.compiler.ir.values import show
from tunec.compiler.resolve import PINNED
from tunec.compiler.review.reasons import span_of
from tunec.schemas.source import COMMAND_LINE, LAID_OVER


def is_set(winner: Definition, planned: Planned) -> bool:
    """Whether the user set a value directly, and it does not follow from another one."""
    kinds = {origin.kind for origin in winner.rests}
    if winner.rank is Rank.PIN:
        return kinds == {"spec"}
    said = [origin.path for origin in winner.rests if origin.kind == "spec"]
    return "slot" not in kinds and any(is_given(planned.loaded.spec, path) for path in said)


def is_given(spec: BaseModel | None, path: str) -> bool:
    """Whether a spec gives a value at a dotted path, rather than using the field's default."""
    here: Any = spec
    for name in path.split("."):
        if not isinstance(here, BaseModel):
            return False
        field = name if name in type(here).model_fields else f"{name}_"
        if field not in here.model_fields_set:
            return False
        here = getattr(here, field)
    return here is not None


def place_said(winner: Definition, planned: Planned) -> str:
    """Where the user set a value, and which value it replaces."""
    spans = (span_of(origin, planned) for origin in winner.rests)
    span = next((each for each in spans if each is not None), None)
    if span is None:
        where = "in the spec"
    elif span.file == COMMAND_LINE:
        where = "on the command line"
    elif span.file == LAID_OVER:
        where = "in the fleet file"
    else:
        where = f"line {span.line} of {Path(span.file).name}"
    others = planned.ledger.of(winner.slot)
    beaten = [each for each in others if each.value != winner.value]
    where += f", instead of {show(winner.slot, beaten[-1].value)}" if beaten else ""
    return f"{winner.reason} ({where})" if _has_own_reason(winner) else where


def _has_own_reason(winner: Definition) -> bool:
    """Whether the user gave a reason with a pin."""
    return winner.rank is Rank.PIN and winner.reason != PINNED
