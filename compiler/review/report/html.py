"""HTML of a page: its frame, its elements, sortable tables, and scales of axes."""

import json
from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib.resources import files
from math import ceil, floor, log10
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.diagnostics.terminal import printable_lines
from tunec.schemas.caches import cached

_VOID: Final = frozenset({"col", "input", "link", "meta"})
"""The elements without an end tag that are used here (HTML Living Standard, 13.1.2)."""


class Element(Struct, frozen=True):
    """One element with its attributes and children."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    children: tuple["Element | str", ...]
    is_source: bool = False
    """Whether the text inside is a style, a script or a script's data, and is not escaped."""


Child = Element | str | None | Iterable["Element | str | None"]
Attribute = str | int | float | bool | None


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Element:
    """Make an element. `class_` becomes `class`, `aria_label` becomes `aria-label`.

    An attribute that is True is written without a value, one that is None or False is omitted.
    Iterables of children are joined.
    """
    given = tuple((_name(key), _value(value)) for key, value in attributes.items() if _is(value))
    return Element(name, given, tuple(_flat(children)))


def named(name: str) -> Callable[..., Element]:
    """A function that makes elements with a given name."""

    def make(*children: Child, **attributes: Attribute) -> Element:
        return tag(name, *children, **attributes)

    return make


def style(source: str) -> Element:
    """A style element. ValueError if the text could end the element."""
    return _source("style", source)


def script(source: str) -> Element:
    """A script element. ValueError if the text could end the element."""
    return _source("script", source)


def data(name: str, value: Any) -> Element:
    """A value for scripts to read, as JSON that cannot end its element."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")
    return _source("script", text, ("type", "application/json"), ("id", name))


def render(element: Element) -> str:
    """The HTML text of an element and everything in it."""
    parts: list[str] = []
    _write(element, parts)
    return "".join(parts)


def number(value: float) -> str:
    """A coordinate with at most two decimals, without trailing zeros."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def _source(name: str, source: str, *attributes: tuple[str, str]) -> Element:
    if f"</{name}" in source.lower() or "<!--" in source:
        raise ValueError(f"the text of a {name} element would end it")
    return Element(name, attributes, (source,), is_source=True)


def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _is(value: Attribute) -> bool:
    return value is not None and value is not False


def _value(value: Attribute) -> str:
    if value is True:
        return ""
    return number(value) if isinstance(value, float) else str(value)


def _flat(children: Iterable[Child]) -> Iterable[Element | str]:
    for child in children:
        if isinstance(child, Element | str):
            yield child
        elif child is not None:
            yield from (each for each in child if each is not None)


def _write(element: Element, parts: list[str]) -> None:
    parts.append(f"<{element.name}")
    parts.extend(_attribute(*each) for each in element.attributes)
    parts.append(">")
    if element.name in _VOID:
        return
    for child in element.children:
        if isinstance(child, Element):
            _write(child, parts)
        else:
            parts.append(child if element.is_source else _text(child))
    parts.append(f"</{element.name}>")


def _attribute(name: str, value: str) -> str:
    return f' {name}="{escape(printable_lines(value))}"' if value else f" {name}"


def _text(text: str) -> str:
    return escape(printable_lines(text), quote=False)


class Column(Struct, frozen=True):
    """A column: its heading, and whether it holds numbers."""

    name: str
    is_number: bool = False


class Cell(Struct, frozen=True):
    """A table cell that is sorted by `value` instead of its text."""

    content: Child
    value: float | str


Row = Sequence[Cell | Child]


def table(
    caption: str, columns: Sequence[Column], rows: Iterable[Row], *, sortable: bool = False
) -> Element:
    """A table whose first column names its rows; wide tables scroll, also with the keyboard."""
    body = tag("tbody", (_row(columns, row) for row in rows))
    head = tag("thead", tag("tr", (_heading(each, sortable=sortable) for each in columns)))
    whole = tag(
        "table", tag("caption", caption), head, body, class_="sortable" if sortable else None
    )
    return scrolling(caption, whole)


def scrolling(name: str, content: Element) -> Element:
    """A region that scrolls if its content is wider than the page."""
    return tag("div", content, class_="scrolls", role="region", aria_label=name, tabindex=0)


def _heading(column: Column, *, sortable: bool) -> Element:
    content: Child = column.name
    if sortable:
        content = tag("button", column.name, tag("span", aria_hidden="true"), type="button")
    return tag("th", content, scope="col", class_="number" if column.is_number else None)


def _row(columns: Sequence[Column], row: Row) -> Element:
    cells = [_cell(columns[at], cell, first=at == 0) for at, cell in enumerate(row)]
    return tag("tr", cells)


def _cell(column: Column, cell: Cell | Child, *, first: bool) -> Element:
    content, value = (
        (cell.content, _sortable(cell.value)) if isinstance(cell, Cell) else (cell, None)
    )
    class_ = "number" if column.is_number else None
    if first:
        return tag("th", content, scope="row", class_=class_, data_value=value)
    # on a phone a row is a block of its own, where each cell says what it is
    return tag("td", content, class_=class_, data_value=value, data_column=column.name)


def _sortable(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.9g}"


_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
_BINARY: Final = tuple(float(2**power) for power in range(11))
_MOST: Final = 5
"""The most intervals of an axis; more would not fit on a phone."""
_APART: Final = 8.0
"""If the largest amount is more than this many times the smallest, an axis is logarithmic."""


class Scale(Struct, frozen=True):
    """A scale that maps amounts from `low` to `high` onto 0 to 100."""

    low: float
    high: float
    ticks: tuple[float, ...]
    is_log: bool = False

    def __call__(self, amount: float) -> float:
        """The position of an amount, from 0 to 100."""
        if self.is_log:
            return 100 * log10(amount / self.low) / log10(self.high / self.low)
        return 100 * (amount - self.low) / (self.high - self.low)


def linear(most: float, *, unit: float = 1.0, binary: bool = False) -> Scale:
    """A scale from 0 to a round amount that is at least `most`; ticks are round in `unit`."""
    step = unit * _step(most / unit / _MOST, binary=binary) if most > 0 else unit
    count = max(1, ceil(most / step - 1e-9))
    ticks = tuple(step * at for at in range(count + 1))
    return Scale(0.0, ticks[-1], ticks)


def inside(most: float) -> Scale:
    """A scale from 0 to exactly `most`, with round ticks below it."""
    step = _step(most / _MOST, binary=False)
    return Scale(0.0, most, tuple(step * at for at in range(int(most / step + 1e-9) + 1)))


def spanning(amounts: Sequence[float], *, unit: float = 1.0, binary: bool = False) -> Scale:
    """A scale for amounts above zero: linear, or logarithmic if they lie far apart."""
    least, most = min(amounts), max(amounts)
    if most <= _APART * least or not least:
        return linear(most * 1.02, unit=unit, binary=binary)
    base = 2.0 if binary else 10.0
    first, last = (floor(_log(least * 0.98 / unit, base)), ceil(_log(most * 1.02 / unit, base)))
    every = max(1, ceil((last - first) / _MOST))
    last = first + every * ceil((last - first) / every)
    ticks = tuple(unit * base**power for power in range(first, last + 1, every))
    return Scale(ticks[0], ticks[-1], ticks, is_log=True)


def _log(amount: float, base: float) -> float:
    return log10(amount) / log10(base)


def _step(least: float, *, binary: bool) -> float:
    """The smallest round step that is at least `least`."""
    if binary and least >= 1:
        fitting = [step for step in _BINARY if step >= least]
        return fitting[0] if fitting else 1024.0 * ceil(least / 1024)
    size = 10.0 ** floor(log10(least))
    return next(step * size for step in _STEPS if step * size >= least * (1 - 1e-9))


class Section(Struct, frozen=True):
    """A section of the page, to which the contents at the top link."""

    id: str
    heading: str
    content: tuple[Child, ...]


class Frame(Struct, frozen=True):
    """The content around the sections."""

    title: str
    subtitle: str
    verdict: str
    fits: bool
    facts: Sequence[tuple[str, str]]
    """The facts at the top of the page, as pairs of name and text."""
    footer: str


def page(frame: Frame, sections: Sequence[Section], extra: Sequence[Element] = ()) -> str:
    """A whole page as text; it is self-contained and loads nothing."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{frame.title} — tunec report"),
        style(_asset("style.css")),
    )
    body = tag(
        "body",
        tag("a", "skip to the content", href="#content", class_="skip"),
        _hatch(),
        _header(frame),
        _navigation(sections),
        tag("main", map(_section, sections), id="content", tabindex=-1),
        tag("footer", tag("p", frame.footer)),
        extra,
        script(_asset("script.js")),
    )
    return f"<!doctype html>\n{render(tag('html', head, body, lang='en'))}\n"


@cached()
def _asset(name: str) -> str:
    return files("tunec.compiler.review.report").joinpath(name).read_text("utf-8")


def _hatch() -> Element:
    """The stripes that fill the margin of a bar, since it holds no data."""
    stripe = tag("path", d="M0 0V6", stroke="var(--hatch)", stroke_width=3)
    pattern = tag(
        "pattern",
        stripe,
        id="hatch",
        width=6,
        height=6,
        patternUnits="userSpaceOnUse",
        patternTransform="rotate(45)",
    )
    return tag(
        "svg", tag("defs", pattern), width=0, height=0, class_="patterns", aria_hidden="true"
    )


def _header(frame: Frame) -> Element:
    facts = tag("dl", map(_fact, frame.facts), class_="facts") if frame.facts else None
    verdict = tag("p", frame.verdict, class_=f"verdict {'good' if frame.fits else 'bad'}")
    return tag("header", tag("h1", frame.title), tag("p", frame.subtitle), verdict, facts)


def _fact(fact: tuple[str, str]) -> Element:
    return tag("div", tag("dt", fact[0]), tag("dd", fact[1]))


def _navigation(sections: Sequence[Section]) -> Element:
    links = (tag("li", tag("a", each.heading, href=f"#{each.id}")) for each in sections)
    return tag("nav", tag("ul", links), aria_label="sections")


def _section(section: Section) -> Element:
    heading = tag("h2", section.heading, id=f"{section.id}-heading")
    return tag(
        "section", heading, *section.content, id=section.id, aria_labelledby=f"{section.id}-heading"
    )


def figure(content: Child, caption: Child, *more: Child) -> Element:
    """A chart with its caption and further elements."""
    return tag("figure", tag("figcaption", caption), content, *more)


def details(summary: Child, *content: Child, is_open: bool = False) -> Element:
    """A part of the page that the reader can open."""
    return tag("details", tag("summary", summary), *content, open=is_open)
