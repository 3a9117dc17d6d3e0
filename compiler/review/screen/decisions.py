"""The decisions that matter for a run: what the user set, what tunec decided, and why."""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from tunec.compiler.diagnostics.terminal import printable
from tunec.compiler.driver import Planned
from tunec.compiler.ir.ledger import Rank
from tunec.compiler.review.screen.pen import WIDTH, Pen
from tunec.compiler.review.screen.topics import TOPICS, Topic
from tunec.compiler.review.user_values import is_set, place_said

_MOST: Final = 12
"""The most decisions on a screen."""
_NAME, _VALUE = 30, 33
"""Columns of a slot's path and of its value, each including its gap."""
_REASON: Final = WIDTH - 2 - _NAME - _VALUE


class Row(Struct, frozen=True):
    """One decision in words."""

    slot: str
    weight: int
    value: str
    reason: str
    is_set: bool
    """Whether the user set the value."""


def decision_lines(planned: Planned, pen: Pen, room: int) -> Iterator[str]:
    """The most important decisions in at most `room` lines, those that the user set first."""
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
    """The `most` rows with the greatest weight, in their original order."""
    kept = sorted(rows, key=lambda row: -row.weight)[: max(0, most)]
    return [row for row in rows if row in kept]


def _row(topic: Topic, planned: Planned) -> Row:
    plan, winner = planned.plan, planned.ledger.winner(topic.slot)
    if plan is None or winner is None:
        raise LookupError(topic.slot)
    own = is_set(winner, planned)
    reason = place_said(winner, planned) if own else winner.reason
    return Row(topic.slot, topic.weight, printable(topic.words(plan)), printable(reason), own)


def _more_pins(planned: Planned, shown: Sequence[Row]) -> list[str]:
    """A line with the number of slots that the user pinned besides those shown."""
    told = {row.slot for row in shown}
    pins = [each for each in planned.ledger.winners() if each.rank is Rank.PIN]
    count = sum(is_set(each, planned) and each.slot not in told for each in pins)
    return [f"  and pins of {count} more slot{'' if count == 1 else 's'}"] if count else []


def _decided(rows: Sequence[Row], pen: Pen, spare: int) -> Iterator[str]:
    """The lines of rows; a reason gets a second line as long as there are lines to spare."""
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
