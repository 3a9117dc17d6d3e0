"""Cost against time drawn in characters: letters for the front, dots for other options."""

from collections.abc import Mapping, Sequence
from string import ascii_letters
from typing import Final

from tunec.compiler.choose.ranking import placed
from tunec.compiler.review.report.html import Scale, spanning
from tunec.schemas.choice import Option

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
