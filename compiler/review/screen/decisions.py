"""The decisions that matter for a run: what the user set, what was decided, and why."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from pydantic import BaseModel

from tunec.compiler.diagnostics.terminal import printable
from tunec.compiler.driver import Planned
from tunec.compiler.ir.ledger import Definition, Rank
from tunec.compiler.ir.values import show
from tunec.compiler.resolve import PINNED
from tunec.compiler.review.reasons import span_of
from tunec.compiler.review.screen.pen import WIDTH, Pen
from tunec.compiler.review.screen.topics import TOPICS, Topic
from tunec.schemas.source import COMMAND_LINE, LAID_OVER

_MOST: Final = 12
"""Decisions on a screen."""
_NAME, _VALUE = 30, 33
"""Columns of a slot's path and of its value, each with its gap."""
_REASON: Final = WIDTH - 2 - _NAME - _VALUE


class Row(Struct, frozen=True):
    """One decision in words."""

    slot: str
    weight: int
    value: str
    reason: str
    is_set: bool
    """Whether the user said so."""


def decision_lines(planned: Planned, pen: Pen, room: int) -> Iterator[str]:
    """The weightiest decisions in at most so many lines, the user's own first."""
    if planned.plan is None:
        return
    topics = [topic for topic in TOPICS if topic.matters(planned.plan)]
    rows = _weightiest([_row(topic, planned) for topic in topics], min(_MOST, room - 3))
    own, others = [row for row in rows if row.is_set], [row for row in rows if not row.is_set]
    more = _more_pins(planned, own)
    spare = room - len(rows) - bool(own or more) - bool(others) - bool(more)
    told = [line for row in own for line in _lines(row, row.reason, pen, 2)]
    if len(told) > len(own) + spare:
        told = [line for row in own for line in _lines(row, row.reason, pen, 1)]
    if own or more:
        yield from (pen.paint("bold", "you set"), *told, *more)
    if others:
        yield pen.paint("bold", "decided for you")
        yield from _decided(others, pen, spare - len(told) + len(own))


def _weightiest(rows: Sequence[Row], most: int) -> list[Row]:
    """The rows with the greatest weight, in the order in which they are read."""
    kept = sorted(rows, key=lambda row: -row.weight)[: max(0, most)]
    return [row for row in rows if row in kept]


def _row(topic: Topic, planned: Planned) -> Row:
    plan, winner = planned.plan, planned.ledger.winner(topic.slot)
    if plan is None or winner is None:
        raise LookupError(topic.slot)
    own = is_set(winner, planned)
    reason = _place(winner, planned) if own else winner.reason
    return Row(topic.slot, topic.weight, printable(topic.words(plan)), printable(reason), own)


def _more_pins(planned: Planned, shown: Sequence[Row]) -> list[str]:
    """How many slots the user pinned besides those that are shown."""
    told = {row.slot for row in shown}
    pins = [each for each in planned.ledger.winners() if each.rank is Rank.PIN]
    count = sum(is_set(each, planned) and each.slot not in told for each in pins)
    return [f"  and pins of {count} more slot{'' if count == 1 else 's'}"] if count else []


def _decided(rows: Sequence[Row], pen: Pen, spare: int) -> Iterator[str]:
    """Lines of rows; a reason takes a second line while there are lines to spare."""
    before = ""
    for row in rows:
        reason = "as above" if row.reason == before else row.reason
        lines = _lines(row, reason, pen, 2 if spare > 0 else 1)
        before, spare = row.reason, spare - len(lines) + 1
        yield from lines


def _lines(row: Row, reason: str, pen: Pen, most: int) -> list[str]:
    first, *more = pen.wrapped(reason, _REASON, most)
    value = pen.shortened(row.value, _VALUE - 2)
    line = f"  {row.slot:<{_NAME}}{pen.paint('bold', f'{value:<{_VALUE}}')}{first}".rstrip()
    return [line, *(" " * (2 + _NAME + _VALUE) + each for each in more)]


# ── who says so ──────────────────────────────────────────────────────────────────────────────────


def is_set(winner: Definition, planned: Planned) -> bool:
    """Whether a value is what the user said, and does not follow from anything else."""
    kinds = {origin.kind for origin in winner.rests}
    if winner.rank is Rank.PIN:
        return kinds == {"spec"}
    said = [origin.path for origin in winner.rests if origin.kind == "spec"]
    return "slot" not in kinds and any(is_given(planned.loaded.spec, path) for path in said)


def is_given(spec: BaseModel | None, path: str) -> bool:
    """Whether a spec has a value at a dotted path, and not the field's default."""
    here: Any = spec
    for name in path.split("."):
        if not isinstance(here, BaseModel):
            return False
        field = name if name in type(here).model_fields else f"{name}_"
        if field not in here.model_fields_set:
            return False
        here = getattr(here, field)
    return here is not None


def _place(winner: Definition, planned: Planned) -> str:
    """Where the user said it, and what it stands instead of."""
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
