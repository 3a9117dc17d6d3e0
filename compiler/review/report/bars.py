"""Bar charts as SVG: amounts stacked against a limit, and the parts of one amount.

Widths are shares of the page's width, heights are pixels, and text keeps its size: a chart is as
readable on a phone as on a large screen.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from tunec.compiler.review.report.html import Element, Scale, inside, linear, named, number, tag
from tunec.schemas.units import GIB, format_bytes

_g: Final = named("g")
_rect: Final = named("rect")
_line: Final = named("line")
_text: Final = named("text")

_ROW: Final = 46
_BAR: Final = 22
_TOP: Final = 24
_AXIS: Final = 26
_CHARACTER: Final = 7.2
"""Upper bound of the average width of a label's character, in pixels."""
_WIDE: Final = 640
_NARROW: Final = 290
"""The least width of a chart on a screen (`_WIDE`) and on a phone (`_NARROW`), in pixels."""
_THIN: Final = 0.9
"""A part below this width (per cent of the chart) is drawn as a line so that it can be seen."""
_LAST: Final = 99.6
"""The width of the scale (per cent of the chart), so that a line at its end is not cut."""


class Bar(Struct, frozen=True):
    """One bar: its name, and its parts in order."""

    name: str
    parts: Mapping[str, float]
    emphasized: bool = False

    @property
    def total(self) -> float:
        """The length of the bar."""
        return sum(self.parts.values())


class Limit(Struct, frozen=True):
    """A limit that bars are compared with."""

    name: str
    amount: float


class Chart(Struct, frozen=True):
    """The settings of a chart besides its bars."""

    title: str
    description: str
    say: Callable[[float], str]
    """Formats an amount with its unit."""
    colours: Mapping[str, str]
    """The CSS class of each part."""


def stacked(chart: Chart, bars: Sequence[Bar], limit: Limit | None) -> Element:
    """A chart of stacked amounts of bytes, with a line at the limit."""
    most = max(*(bar.total for bar in bars), limit.amount if limit else 0.0, 1.0)
    scale = linear(most, unit=float(GIB) if most >= GIB else most / 4, binary=True)
    height = _TOP + _ROW * len(bars) + _AXIS
    return _svg(
        chart,
        height,
        _axis(scale, height - _AXIS, tick_text),
        [_stack(chart, bar, scale, _TOP + _ROW * at) for at, bar in enumerate(bars)],
        list(_limit(limit, scale, height - _AXIS, chart.say)) if limit else [],
    )


def whole(chart: Chart, parts: Mapping[str, float]) -> Element:
    """A chart of the parts of one amount, in one bar over the whole width."""
    total = sum(parts.values())
    row = _stack(chart, Bar(chart.title, parts), inside(total), 6)
    bottom = 6 + _ROW
    return _svg(chart, bottom + _AXIS, _axis(inside(total), bottom, chart.say), [row])


def legend(colours: Mapping[str, str], amounts: Mapping[str, str]) -> Element:
    """The meaning of each colour, with its amount in the most important bar."""
    items = (
        tag(
            "li",
            tag("span", class_=f"key {colour}", aria_hidden="true"),
            tag("span", name),
            tag("span", amounts[name], class_="amount") if name in amounts else None,
        )
        for name, colour in colours.items()
    )
    return tag("ul", items, class_="legend")


def _svg(chart: Chart, height: float, *content: list[Element]) -> Element:
    return tag(
        "svg",
        *content,
        role="img",
        class_="chart",
        width="100%",
        height=height,
        aria_label=f"{chart.title}: {chart.description}",
    )


def tick_text(amount: float) -> str:
    """Bytes as an axis shows them: `16 GiB`."""
    return format_bytes(amount).replace(".0 ", " ")


def place(share: float) -> str:
    """A percentage of the width as a coordinate of the drawing."""
    return f"{number(share * _LAST / 100)}%"


def anchor(share: float) -> str:
    """The `text-anchor` of a text at a percentage of the width, so that it stays inside."""
    return "start" if share < 8 else "end" if share > 92 else "middle"


def _axis(scale: Scale, bottom: float, say: Callable[[float], str]) -> list[Element]:
    lines = [
        _line(x1=place(scale(each)), x2=place(scale(each)), y1=_TOP - 4, y2=bottom, class_="grid")
        for each in scale.ticks
    ]
    texts = [
        _text(
            say(each),
            x=place(scale(each)),
            y=bottom + 18,
            text_anchor=anchor(scale(each)),
            class_=f"tick{' wide-only' if at % 2 and len(scale.ticks) > 4 else ''}",
        )
        for at, each in enumerate(scale.ticks)
    ]
    return [_g(lines, texts, aria_hidden="true")]


def _limit(
    limit: Limit, scale: Scale, bottom: float, say: Callable[[float], str]
) -> Iterator[Element]:
    at = scale(limit.amount)
    yield _line(x1=place(at), x2=place(at), y1=_TOP - 8, y2=bottom, class_="limit")
    yield _text(
        f"{limit.name} {say(limit.amount)}",
        x=place(at),
        y=12,
        text_anchor="end" if at > 50 else "start",
        class_="limit-name",
    )


def _named_row(name: str, amount: str, top: float, *, strong: bool = False) -> Element:
    weight = "row-name strong" if strong else "row-name"
    told = tag("tspan", amount, dx=8, class_="row-amount")
    return _text(name, told, x=0, y=top + 11, class_=weight)


def _stack(chart: Chart, bar: Bar, scale: Scale, top: float) -> Element:
    parts: list[Element] = []
    start = 0.0
    for name, amount in bar.parts.items():
        parts.append(_part(chart, name, start, amount, scale, top + 16))
        start += amount
    row = _named_row(bar.name, chart.say(bar.total), top, strong=bar.emphasized)
    return _g(row, parts)


def _part(
    chart: Chart, name: str, start: float, amount: float, scale: Scale, top: float
) -> Element:
    left, right = scale(start), scale(start + amount)
    colour = chart.colours.get(name, "c0")
    is_thin = right - left < _THIN
    box = _rect(
        tag("title", f"{name}: {chart.say(amount)}"),
        x=place(left),
        y=top,
        width=2 if is_thin else place(right - left),
        height=_BAR,
        class_=f"part {colour}{' thin' if is_thin else ''}",
    )
    return _g(box, _inside(name, left, right, top, colour))


def _inside(name: str, left: float, right: float, top: float, colour: str) -> Element | None:
    """The name inside a part if there is room for it; on a phone only if there is room there."""
    needs = len(name) * _CHARACTER + 8
    room = (right - left) / 100
    if room * _WIDE < needs:
        return None
    shown = f"in-bar on-{colour}{'' if room * _NARROW >= needs else ' wide-only'}"
    middle = place((left + right) / 2)
    return _text(name, x=middle, y=top + 15, text_anchor="middle", class_=shown)
