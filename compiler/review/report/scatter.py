"""Scatter plots as SVG: labelled points on two axes, and a line at a limit."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Literal

from msgspec import Struct

from tunec.compiler.review.report.bars import anchor
from tunec.compiler.review.report.html import Element, Scale, named, number, spanning, tag
from tunec.schemas.frozen import replace

_g: Final = named("g")
_line: Final = named("line")
_text: Final = named("text")
_path: Final = named("path")

Mark = Literal["chosen", "fits", "device memory", "host memory"]

MARKS: Final = {
    "chosen": (
        "m-chosen",
        "M0,-9L2.6,-3.1L9,-2.8L4,1.3L5.6,7.7L0,4.1L-5.6,7.7L-4,1.3L-9,-2.8L-2.6,-3.1Z",
    ),
    "fits": ("m-fits", "M0,-5.5A5.5,5.5 0 1 1 0,5.5A5.5,5.5 0 1 1 0,-5.5Z"),
    "device memory": ("m-short", "M-5,-5L5,5M-5,5L5,-5"),
    "host memory": ("m-host", "M0,-6L6,5L-6,5Z"),
}
"""CSS class and outline of each mark, around its centre; marks differ in shape, not only in
colour."""

_HEIGHT: Final = 340
_TOP: Final = 30
_BOTTOM: Final = 30
_GUTTER: Final = 64
_WIDTHS: Final = (260.0, 900.0)
"""Pixels of the plot on a phone and on a wide screen; labels must not overlap on either."""
_LEFT: Final = 1.0
_RIGHT: Final = 97.0
"""The scale's start (`_LEFT`) and end (`_RIGHT`) in per cent of the width."""
_NEAR: Final = 3.0
"""Marks closer than this many pixels are merged."""
_FAR: Final = 22.0
"""A label at least this many pixels from its mark is joined to the mark by a line."""
_CHARACTER: Final = 7.0
_LINE: Final = 14.0
_OFFSETS: Final = (
    *((9.0, 4.0), (-9.0, 4.0), (0.0, -11.0), (0.0, 19.0), (9.0, -9.0), (9.0, 16.0)),
    *((-9.0, -9.0), (-9.0, 16.0), (0.0, -25.0), (0.0, 33.0), (14.0, -23.0), (14.0, 30.0)),
    *((-14.0, -23.0), (-14.0, 30.0), (26.0, -9.0), (26.0, 16.0), (-26.0, -9.0), (-26.0, 16.0)),
    *((0.0, -39.0), (0.0, 47.0), (20.0, -37.0), (20.0, 44.0), (-20.0, -37.0), (-20.0, 44.0)),
)
"""Possible positions of a label beside its mark: right, left, above, below, and farther away."""


class Point(Struct, frozen=True):
    """One point of the plot."""

    label: str
    hint: str
    """The text that is shown while the pointer is over the point."""
    along: float
    up: float
    mark: Mark


class _Placed(Struct, frozen=True):
    point: Point
    x: float
    """Per cent of the width."""
    y: float
    """Pixels from the top."""
    dx: float = 0.0
    dy: float = 0.0

    def box(self, width: float) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of the label on a plot of this width, in pixels."""
        wide = len(self.point.label) * _CHARACTER
        middle = self.x * width / 100 + self.dx
        left = middle - wide / 2 if self.dx == 0 else middle if self.dx > 0 else middle - wide
        return left, self.y + self.dy - _LINE + 3, left + wide, self.y + self.dy + 3

    def mark_box(self, width: float) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of the mark on a plot of this width, in pixels."""
        middle = self.x * width / 100
        return middle - 7, self.y - 7, middle + 7, self.y + 7


def scatter(
    title: str,
    description: str,
    points: Sequence[Point],
    along: Scale,
    *,
    budget: float | None = None,
    say_along: Callable[[float], str],
    say_up: Callable[[float], str],
) -> Element:
    """Draw the plot, as wide as the page allows, with the vertical axis beside the drawing.

    `budget`: the amount along the horizontal axis at which a line marks the limit.
    """
    up = spanning([each.up for each in points])
    placed = _labelled(_merged([_at(each, along, up) for each in points]))
    drawing = tag(
        "svg",
        _grid(along, up, say_along),
        None if budget is None else _budget(along, budget, say_along),
        [_point(each) for each in sorted(placed, key=_is_chosen)],
        role="img",
        class_="chart",
        width="100%",
        height=_HEIGHT,
        aria_label=f"{title}: {description}",
    )
    return tag("div", _amounts(up, say_up), drawing, class_="plot")


def mark(kind: Mark) -> Element:
    """A mark by itself, for the legend."""
    class_, outline = MARKS[kind]
    return tag(
        "svg",
        _path(d=outline, class_=class_, transform="translate(10 10)"),
        width=20,
        height=20,
        aria_hidden="true",
    )


def _is_chosen(each: _Placed) -> bool:
    """Whether a mark is the chosen one, which is drawn last, above the others."""
    return each.point.mark == "chosen"


def _at(point: Point, along: Scale, up: Scale) -> _Placed:
    return _Placed(point, _x(along(point.along)), _y(up(point.up)))


def _x(share: float) -> float:
    return _LEFT + share * (_RIGHT - _LEFT) / 100


def _y(share: float) -> float:
    return _HEIGHT - _BOTTOM - share * (_HEIGHT - _BOTTOM - _TOP) / 100


def _merged(placed: Iterable[_Placed]) -> list[_Placed]:
    """Merge marks of one kind at one place into one, with all their labels."""
    found: list[_Placed] = []
    for each in placed:
        near = next((at for at, other in enumerate(found) if _are_one(each, other)), None)
        if near is None:
            found.append(each)
        else:
            other = found[near].point
            both = replace(
                other,
                label=", ".join(filter(None, (other.label, each.point.label))),
                hint=f"{other.hint}\n{each.point.hint}",
            )
            found[near] = replace(found[near], point=both)
    return found


def _are_one(one: _Placed, other: _Placed) -> bool:
    apart = max(abs(one.x - other.x) * _WIDTHS[1] / 100, abs(one.y - other.y))
    return one.point.mark == other.point.mark and apart < _NEAR


def _labelled(placed: Sequence[_Placed]) -> list[_Placed]:
    """Put each label at the first place where it covers no mark and no other label."""
    done: list[_Placed] = []
    for each in placed:
        options = (
            [replace(each, dx=dx, dy=dy) for dx, dy in _OFFSETS] if each.point.label else [each]
        )
        costs = [_cost(option, done, placed) for option in options]
        done.append(options[costs.index(min(costs))])
    return done


def _cost(option: _Placed, done: Sequence[_Placed], every: Sequence[_Placed]) -> int:
    """The overlap of a label on all widths; the plot's edge costs most, then labels, then marks."""
    cost = 0
    for width in _WIDTHS:
        box = option.box(width)
        cost += 9 * (box[0] < 0 or box[2] > width or box[1] < _TOP or box[3] > _HEIGHT - _BOTTOM)
        cost += 4 * sum(_overlap(box, other.box(width)) for other in done)
        cost += sum(_overlap(box, other.mark_box(width)) for other in every)
    return cost


def _overlap(
    one: tuple[float, float, float, float], other: tuple[float, float, float, float]
) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _percent(value: float) -> str:
    return f"{number(value)}%"


def _grid(along: Scale, up: Scale, say: Callable[[float], str]) -> Element:
    bottom = _HEIGHT - _BOTTOM
    level = [
        _line(x1="0", x2="100%", y1=_y(up(each)), y2=_y(up(each)), class_="grid")
        for each in up.ticks
    ]
    upright = [
        _line(x1=_percent(x), x2=_percent(x), y1=bottom, y2=bottom + 5, class_="grid")
        for x in (_x(along(each)) for each in along.ticks)
    ]
    texts = [
        _text(
            say(each),
            x=_percent(_x(along(each))),
            y=bottom + 20,
            text_anchor=anchor(along(each)),
            class_=f"tick{' wide-only' if at % 2 and len(along.ticks) > 4 else ''}",
        )
        for at, each in enumerate(along.ticks)
    ]
    return _g(level, upright, texts, aria_hidden="true")


def _budget(along: Scale, budget: float, say: Callable[[float], str]) -> Element:
    x = _x(along(budget))
    name = _text(
        f"budget {say(budget)}",
        x=_percent(x),
        y=16,
        text_anchor="end" if x > 50 else "start",
        class_="limit-name",
    )
    return _g(
        _line(x1=_percent(x), x2=_percent(x), y1=22, y2=_HEIGHT - _BOTTOM, class_="limit"), name
    )


def _point(each: _Placed) -> Element:
    class_, outline = MARKS[each.point.mark]
    side = "middle" if each.dx == 0 else "start" if each.dx > 0 else "end"
    # a nested drawing carries the place in parts of the width, which a path cannot
    return tag(
        "svg",
        _g(
            tag("title", each.point.hint),
            _leader(each),
            _path(d=outline, class_=class_),
            _text(each.point.label, x=each.dx, y=each.dy, text_anchor=side, class_="point-name"),
        ),
        x=_percent(each.x),
        y=each.y,
        class_="point",
    )


def _leader(each: _Placed) -> Element | None:
    """A thin line from a mark to a label that is farther away."""
    if max(abs(each.dx), abs(each.dy)) < _FAR:
        return None
    end = each.dy + 3 if each.dy < 0 else each.dy - 11
    return _line(x1=0, y1=0, x2=each.dx, y2=end, class_="leader")


def _amounts(up: Scale, say: Callable[[float], str]) -> Element:
    texts = (
        _text(say(each), x=_GUTTER - 8, y=_y(up(each)) + 4, text_anchor="end", class_="tick")
        for each in up.ticks
    )
    return tag("svg", texts, width=_GUTTER, height=_HEIGHT, class_="gutter", aria_hidden="true")


def marks_of(points: Iterable[Point]) -> Iterator[Mark]:
    """The kinds of marks that occur, in the order of the legend."""
    there = {each.mark for each in points}
    every: tuple[Mark, ...] = ("chosen", "fits", "device memory", "host memory")
    yield from (kind for kind in every if kind in there)
