"""A choice on a screen: a table, a picture of cost against time, and the accuracy."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from string import ascii_letters
from textwrap import wrap
from typing import Final

from tunec.compiler.analyses.time.account import MARGIN, OFF
from tunec.compiler.choose.options import Asking, has_length
from tunec.compiler.choose.ranking import kept, placed
from tunec.compiler.choose.wording import (
    FULL_SAMPLES,
    cells,
    columns,
    dates,
    heading,
    is_at_most,
    limits,
    surer,
    verdict,
)
from tunec.compiler.diagnostics.terminal import printable
from tunec.compiler.review.report.html import Scale, spanning
from tunec.compiler.review.screen.pen import WIDTH, Pen
from tunec.schemas.choice import Choice, Option, Result

_WIDTH: Final = 80
_HEIGHT: Final = 12
_FEWEST: Final = 2
"""The fewest points of a picture."""
_GUTTER: Final = 10
"""Columns of the numbers on the left."""


def letters(options: Sequence[Option]) -> dict[str, str]:
    """A letter for each option of the front, by cluster, in the order of the options."""
    front = [each.cluster for each in options if each.is_on_front]
    return dict(zip(front, ascii_letters, strict=False))


def picture(
    options: Sequence[Option], named: Mapping[str, str], *, whole: bool, drawing: bool
) -> list[str]:
    """Lines of a plot of cost (vertical) against time; empty with fewer than two points."""
    points = placed(options, whole=whole)
    if len(points) < _FEWEST:
        return []
    along = spanning([seconds / 3600 for seconds, _, _ in points])
    up = spanning([cost for _, cost, _ in points])
    cells = [[" "] * _WIDTH for _ in range(_HEIGHT)]
    for seconds, cost, each in sorted(points, key=lambda one: one[2].is_on_front):
        column = round(along(seconds / 3600) * (_WIDTH - 1) / 100)
        row = _HEIGHT - 1 - round(up(cost) * (_HEIGHT - 1) / 100)
        cells[row][column] = named.get(each.cluster, "·" if drawing else ".")
    return [*_rows(cells, up, drawing=drawing), *_axis(along, drawing=drawing)]


def _rows(cells: Sequence[Sequence[str]], up: Scale, *, drawing: bool) -> list[str]:
    edge = "│" if drawing else "|"
    ticks = {_HEIGHT - 1 - round(up(tick) * (_HEIGHT - 1) / 100): tick for tick in up.ticks}
    return [
        f"{_dollars(ticks[at]) if at in ticks else '':>{_GUTTER - 2}} {edge}{''.join(row)}".rstrip()
        for at, row in enumerate(cells)
    ]


def _axis(along: Scale, *, drawing: bool) -> list[str]:
    line = ("└" if drawing else "+") + ("─" if drawing else "-") * _WIDTH
    text = [" "] * (_WIDTH + _GUTTER + 8)
    for tick in along.ticks:
        word = f"{tick:,.4g} h"
        at = _GUTTER + round(along(tick) * (_WIDTH - 1) / 100)
        at = min(at, _GUTTER + _WIDTH - len(word))
        if all(cell == " " for cell in text[max(0, at - 1) : at + len(word) + 1]):
            text[at : at + len(word)] = word
    return [f"{'':>{_GUTTER - 1}}{line}", "".join(text).rstrip()]


def _dollars(amount: float) -> str:
    return f"${amount:,.0f}" if amount >= 1 or not amount else f"${amount:.3g}"


SHOWN: Final = 20
"""The most options that are listed without `--all`."""
_REASONS: Final = 5
_NAMED: Final = 4
"""The most clusters that are listed for one reason."""

Line = Sequence[str]


def choice_text(choice: Choice, asking: Asking, pen: Pen, *, every: bool) -> str:
    """The whole screen of a choice; for a sweep, the best option for each combination."""
    lines = [pen.paint("bold", printable(heading(choice))), ""]
    if len(choice.results) > 1:
        lines += _sweep(choice.results, pen)
    else:
        lines += _result(choice.results[0], asking, pen, every=every)
    return "\n".join((*lines, *_trust(choice)))


def _result(result: Result, asking: Asking, pen: Pen, *, every: bool) -> Iterator[str]:
    left = kept(result)
    whole = has_length(left)
    yield pen.paint("good" if left else "bad", verdict(result, asking))
    yield from filter(None, [surer(result, asking)])
    yield ""
    if left:
        named = letters(left)
        rows = [[named.get(each.cluster, ""), *cells(each, whole=whole)] for each in left]
        yield from _table(
            [("", False), *columns(whole=whole)], rows if every else rows[:SHOWN], pen
        )
        if not every and len(rows) > SHOWN:
            yield f"and {len(rows) - SHOWN} more (--all)"
        yield from _doubts(left if every else left[:SHOWN])
        yield from _picture(left, named, pen, whole=whole)
    yield from _left_out(result, asking)
    yield from _lacking(result)
    yield ""


def _doubts(shown: Sequence[Option]) -> Iterator[str]:
    """Forecasts that may be far off, by the reason."""
    for why in dict.fromkeys(each.doubt for each in shown if each.doubt):
        names = ", ".join(each.cluster for each in shown if each.doubt == why)
        yield from _hanging(f"in doubt: {names}: {why}")


def _picture(
    options: Sequence[Option], named: dict[str, str], pen: Pen, *, whole: bool
) -> Iterator[str]:
    drawn = picture(options, named, whole=whole, drawing=pen.drawing)
    if drawn:
        of = "the run" if whole else "1,000 samples"
        yield from ("", f"cost of {of} by its hours; for letters, nothing is cheaper and faster")
        yield from (*drawn, "")


def _sweep(results: Sequence[Result], pen: Pen) -> Iterator[str]:
    """The best option for each combination of values."""
    firsts = [next(iter(kept(each)), None) for each in results]
    whole = has_length([each for each in firsts if each is not None])
    names = columns(whole=whole)
    head = [*((path, True) for path in results[0].values), ("clusters", True), *names]
    rows = [
        [
            *map(str, result.values.values()),
            str(len(kept(result))),
            *(cells(first, whole=whole) if first else ("none is left", *("",) * (len(names) - 1))),
        ]
        for result, first in zip(results, firsts, strict=True)
    ]
    yield from (*_table(head, rows, pen), "")


def _table(head: Sequence[tuple[str, bool]], rows: Sequence[Line], pen: Pen) -> Iterator[str]:
    """Column headings, each with whether its column is numeric, and the rows."""
    every = [[name for name, _ in head], *rows]
    widths = [max(len(row[at]) for row in every) for at in range(len(head))]
    for number, row in enumerate(every):
        aligned = (
            f"{text:{'>' if is_number else '<'}{width}}"
            for text, width, (_, is_number) in zip(row, widths, head, strict=True)
        )
        line = printable("  ".join(aligned).rstrip())
        yield line if number else pen.paint("dim", line)


def _left_out(result: Result, asking: Asking) -> Iterator[str]:
    """The options that fit but miss a limit."""
    by_reason: dict[str, list[Option]] = {}
    for each in result.options:
        if each.misses is not None:
            by_reason.setdefault(each.misses, []).append(each)
    for missed in by_reason.values():
        yield printable(f"left out: {len(missed)}, {limits(missed, asking)}")


def _lacking(result: Result) -> Iterator[str]:
    """The options that do not fit, and why."""
    lacking = [each for each in result.options if not each.fits]
    reasons = Counter(each.why or "" for each in lacking)
    if lacking:
        yield f"{len(lacking)} do not fit:"
    for why, count in reasons.most_common(_REASONS):
        names = [each.cluster for each in lacking if each.why == why]
        more = f" and {count - _NAMED} more" if count > _NAMED else ""
        yield from _hanging(f"  {', '.join(names[:_NAMED])}{more}: {why}")
    if len(reasons) > _REASONS:
        yield "  and others (--format json)"


def _hanging(text: str) -> list[str]:
    return wrap(printable(text), WIDTH, subsequent_indent="    ", break_on_hyphens=False)


def _trust(choice: Choice) -> Iterator[str]:
    """The accuracy of the numbers, and the dates of the prices."""
    yield f"time is a forecast with a margin of {MARGIN:.0%}:"
    yield f"  {OFF}"
    if is_at_most(choice):
        yield from _hanging(FULL_SAMPLES)
    yield "energy is that of the devices at their power limit, which is the most they take"
    if choice.market == "spot":
        yield "spot: without the hours that interruptions cost"
    for day, source in dates(choice):
        yield from _hanging(f"prices of {day}: {source.partition(';')[0]}")
