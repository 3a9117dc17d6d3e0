"""Explanation of one slot: the tree from its value to the lines it rests on, and what it beat."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tunec.compiler.driver import Planned
from tunec.compiler.ir.ledger import Definition, Origin, Rank
from tunec.compiler.ir.values import plain, show
from tunec.compiler.resolve import PINNED
from tunec.compiler.review.candidates import ConsideredLayout
from tunec.compiler.review.reasons import Branch, Reasons, span_of
from tunec.schemas.source import COMMAND_LINE, LAID_OVER


def explain_text(planned: Planned, slot: str) -> str:
    """The tree as text, drawn with lines. KeyError if no definition of the slot exists."""
    root = Reasons(planned).of(slot)
    return "\n".join([root.text, *_drawn(root.below, ""), *_traced(planned, slot)])


def _traced(planned: Planned, slot: str) -> Iterator[str]:
    """The source of a searched slot's memory, if it was traced and not calculated."""
    winner, memory = planned.ledger.winner(slot), planned.memory
    if winner is None or memory is None or memory.calibration is None:
        return
    if winner.author == "fit":
        yield f"the memory of the chosen layout was traced in {memory.calibration}"


def explain_json(planned: Planned, slot: str) -> dict[str, Any]:
    """The definitions of a slot as data, the winner first, and the layouts that were considered."""
    definitions = planned.ledger.of(slot)
    winner = planned.ledger.winner(slot)
    if winner is None:
        raise KeyError(slot)
    others = [each for each in definitions if each is not winner]
    return {
        "slot": slot,
        "value": plain(winner.value),
        "definitions": [definition_json(each, planned) for each in (winner, *others)],
        "considered": [_considered_json(each) for each in Reasons(planned).considered(slot)],
        "calibration": planned.memory.calibration if planned.memory else None,
    }


def definition_json(definition: Definition, planned: Planned) -> dict[str, Any]:
    """One definition as data."""
    return {
        "value": plain(definition.value),
        "rank": definition.rank.name,
        "author": definition.author,
        "reason": definition.reason,
        "rests": [_origin_json(origin, planned) for origin in definition.rests],
        "beat": [
            {"value": plain(other.value), "reason": other.reason} for other in definition.beat
        ],
    }


def _origin_json(origin: Origin, planned: Planned) -> dict[str, Any]:
    span = span_of(origin, planned)
    place = {"file": span.file, "line": span.line, "column": span.column} if span else {}
    return {"kind": origin.kind, "path": origin.path, **place}


def _considered_json(each: ConsideredLayout) -> dict[str, Any]:
    judged = {"layout": each.name, "state": each.state, "why": each.why}
    slots = {slot: plain(value) for slot, value in each.slots.items()}
    if each.state == "refused":
        return {**judged, "slots": slots}
    return {
        **judged,
        "slots": slots,
        "micro": each.micro,
        "accumulation": each.accumulation,
        "required_bytes": each.required,
        "terms": dict(each.terms),
        "host_required_bytes": each.host_required,
        "host_terms": dict(each.host_terms),
        "step_seconds": each.step_seconds,
        "samples_per_second": each.samples_per_second,
        "tokens_per_second": each.tokens_per_second,
    }


def _drawn(branches: tuple[Branch, ...], lead: str) -> Iterator[str]:
    for at, branch in enumerate(branches):
        last = at == len(branches) - 1
        yield f"{lead}{'└─ ' if last else '├─ '}{branch.text}"
        yield from _drawn(branch.below, lead + ("   " if last else "│  "))


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
