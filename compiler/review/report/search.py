"""The section about the search: every layout as a point and a row, with why it was rejected."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from tunec.compiler.review.candidates import Considerations, ConsideredLayout
from tunec.compiler.review.report.bars import tick_text
from tunec.compiler.review.report.html import (
    Cell,
    Child,
    Column,
    Element,
    Row,
    Section,
    details,
    figure,
    spanning,
    table,
    tag,
)
from tunec.compiler.review.report.scatter import Mark, Point, mark, marks_of, scatter
from tunec.compiler.review.report.sections import seconds_text
from tunec.schemas.units import GIB, format_bytes

_LEGEND: Final = {
    "chosen": "chosen",
    "fits": "fits",
    "device memory": "needs more memory than a device may give (one sample at a time)",
    "host memory": "needs more memory than the host has (one sample at a time)",
}
_CHOICE: Final = (
    "The fastest one that fits is chosen; among those that are almost equally fast, the simplest."
)
_COLUMNS: Final = (
    Column("layout"),
    Column("no.", is_number=True),
    Column("memory", is_number=True),
    Column("host", is_number=True),
    Column("micro batch", is_number=True),
    Column("step", is_number=True),
    Column("speed", is_number=True),
    Column("result"),
)


def search_section(considered: Considerations, *, per_token: bool) -> Section | None:
    """The layouts that were considered; None if there are none to show.

    `per_token`: whether speed is shown in tokens instead of samples.
    """
    numbered = {each.name: at for at, each in enumerate(_plotted(considered), 1)}
    if not considered.layouts:
        return None
    ran = [each for each in considered.layouts if each.state != "refused"]
    rows = [_row(each, numbered, per_token=per_token) for each in ran]
    content = (
        tag("p", _words(considered)),
        _plot(considered, numbered, per_token=per_token) if numbered else None,
        table("Layouts that were considered", _COLUMNS, rows, sortable=True) if rows else None,
        *_ruled_out(considered.layouts),
        *_micro_batches(considered.micro_batches),
    )
    return Section("search", "Search", content)


def _words(considered: Considerations) -> str:
    states = Counter(each.state for each in considered.layouts)
    kinds = (
        (states["chosen"] + states["fits"], "fits", "fit"),
        (states["device memory"], *_needs("than a device may give")),
        (states["host memory"], *_needs("than the host has")),
        (states["refused"], "is ruled out", "are ruled out"),
    )
    counted = ", ".join(f"{n} {one if n == 1 else many}" for n, one, many in kinds if n)
    words = f"{len(considered.layouts)} layouts were considered: {counted}."
    return f"{words} {_CHOICE}" if states["chosen"] else words


def _needs(what: str) -> tuple[str, str]:
    return f"needs more memory {what}", f"need more memory {what}"


def _plotted(considered: Considerations) -> list[ConsideredLayout]:
    return [each for each in considered.layouts if each.state != "refused" and each.required]


def _plot(considered: Considerations, numbered: dict[str, int], *, per_token: bool) -> Element:
    unit = "tokens/s" if per_token else "samples/s"
    points = [_point(each, numbered, per_token=per_token) for each in _plotted(considered)]
    described = (
        "; ".join(f"{each.label}: {each.hint}" for each in points if each.mark == "chosen")
        or "none of them fits"
    )
    keys = (tag("li", mark(kind), tag("span", _LEGEND[kind])) for kind in marks_of(points))
    drawn = scatter(
        "layouts by memory and speed",
        f"{len(points)} layouts; {described}; the table below has all of them",
        points,
        spanning([*(e.along for e in points), considered.budget], unit=float(GIB), binary=True),
        budget=considered.budget,
        say_along=tick_text,
        say_up=lambda speed: f"{speed:,.4g}" if speed < 1000 else f"{speed:,.0f}",
    )
    caption = f"Speed ({unit}, up) by memory of a device (along). Numbers are those of the table."
    return figure(drawn, caption, tag("ul", keys, class_="legend"))


def _point(each: ConsideredLayout, numbered: dict[str, int], *, per_token: bool) -> Point:
    kind: Mark = "fits" if each.state == "refused" else each.state
    hint = f"{each.name}: {format_bytes(each.required)}, {each.why}"
    speed = _speed(each, per_token=per_token)
    return Point(str(numbered[each.name]), hint, float(each.required), speed, kind)


def _speed(each: ConsideredLayout, *, per_token: bool) -> float:
    return each.tokens_per_second if per_token else each.samples_per_second


def _row(each: ConsideredLayout, numbered: dict[str, int], *, per_token: bool) -> Row:
    at = numbered.get(each.name)
    name = tag("strong", each.name) if each.state == "chosen" else each.name
    number = Cell(str(at) if at else "—", float(at or len(numbered) + 1))
    return (name, number, *_measures(each, per_token=per_token), _why(each))


def _why(each: ConsideredLayout) -> str:
    return f"chosen: {each.why}" if each.state == "chosen" else each.why


def _measures(each: ConsideredLayout, *, per_token: bool) -> Iterator[Cell]:
    speed, unit = _speed(each, per_token=per_token), "tokens/s" if per_token else "samples/s"
    yield Cell(format_bytes(each.required), float(each.required))
    yield Cell(format_bytes(each.host_required), float(each.host_required))
    yield Cell(f"{each.micro} x {each.accumulation}", float(each.micro))
    yield Cell(seconds_text(each.step_seconds), each.step_seconds)
    yield Cell(f"{speed:,.0f} {unit}" if per_token else f"{speed:.3g} {unit}", speed)


def _ruled_out(layouts: Sequence[ConsideredLayout]) -> Iterator[Child]:
    """Layouts that cannot run, grouped by the rule that refuses them."""
    by_reason: dict[str, list[str]] = {}
    for each in layouts:
        if each.state == "refused":
            by_reason.setdefault(each.why, []).append(each.name)
    if by_reason:
        count = sum(map(len, by_reason.values()))
        columns = (Column("reason"), Column("layouts", is_number=True), Column("which"))
        rows = [(why, f"{len(names)}", "; ".join(names)) for why, names in by_reason.items()]
        listed = table("Layouts that are ruled out, by reason", columns, rows)
        yield details(f"{count} layouts that are ruled out", listed)


def _micro_batches(sizes: Sequence[ConsideredLayout]) -> Iterator[Child]:
    if len(sizes) < 2:
        return
    columns = (
        Column("micro batch", is_number=True),
        Column("memory", is_number=True),
        Column("step", is_number=True),
        Column("result"),
    )
    rows: list[Row] = [
        (
            str(each.micro),
            Cell(format_bytes(each.required), float(each.required)),
            Cell(seconds_text(each.step_seconds), each.step_seconds),
            _why(each),
        )
        for each in sizes
    ]
    yield tag("h3", "Micro batches of the chosen layout")
    yield table("Sizes near the chosen one", columns, rows)
