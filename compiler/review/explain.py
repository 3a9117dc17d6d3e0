"""Explanation of one slot: the tree from its value to the lines it rests on, and what it beat."""

from collections.abc import Iterator
from typing import Any

from tunec.compiler.driver import Planned
from tunec.compiler.ir.ledger import Definition, Origin
from tunec.compiler.ir.values import plain
from tunec.compiler.review.candidates import ConsideredLayout
from tunec.compiler.review.reasons import Branch, Reasons, span_of


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
