"""The heat map of a fleet: a table of all pairs, and the pairs as data for the page's script."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field

from tunec.compiler.review.report.html import Element, data, tag
from tunec.schemas.units import MIB

Row = Mapping[str, Any]
"""A row of a fleet's summary, by column name."""

_LAYOUT: Final = (
    *("precision", "engine", "zero", "offload", "checkpointing"),
    *("micro", "accumulation", "global", "devices"),
)
_BOUNDS: Final = (0, 30, 50, 60, 70, 80, 90, 95)
"""Per cent of a budget at which each colour begins; the steps are finer for fuller devices."""
_METRICS: Final = {
    "memory": "memory, % of the budget",
    "tokens": "tokens a second",
    "samples": "samples a second",
    "cost": "dollars of the run",
    "micro": "micro batch",
    "devices": "devices used",
    "layout": "engine and ZeRO stage",
    "precision": "precision",
}
_SHORT: Final = 12
_MANY: Final = 12
"""If a heading has more characters than `_SHORT`, or there are more columns than this, headings are
turned; otherwise they are upright."""


class Grid(Struct, frozen=True):
    """The pairs of a fleet by row and column; rows are the side with more entries."""

    row: str
    """The kind of a row: `cluster` or `spec`."""
    column: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    pairs: Mapping[tuple[str, str], Row]

    def lines(self) -> Iterator[tuple[str, list[Row | None]]]:
        """Each row's name with its pairs; None for a pair that the lock does not have."""
        for name in self.rows:
            yield name, [self.pairs.get((name, column)) for column in self.columns]


def grid_of(rows: Sequence[Row]) -> Grid:
    """Arrange the rows of a summary in a grid."""
    specs = sorted({row["spec"] for row in rows})
    clusters = sorted({row["cluster"] for row in rows})
    along, across = ("cluster", "spec") if len(clusters) >= len(specs) else ("spec", "cluster")
    names = {"spec": tuple(specs), "cluster": tuple(clusters)}
    pairs = {(row[along], row[across]): row for row in rows}
    return Grid(along, across, names[along], names[across], pairs)


def heat_table(grid: Grid) -> Element:
    """A table with a cell for each pair, coloured by the share of the budget that it needs."""
    corner = tag("th", tag("button", grid.row, tag("span"), type="button"), scope="col")
    fits = tag("th", tag("button", "fits", tag("span"), type="button"), scope="col")
    turned = len(grid.columns) > _MANY or max(map(len, grid.columns)) > _SHORT
    names = (_heading(name, turned=turned) for name in grid.columns)
    head = tag("thead", tag("tr", corner, fits, names))
    body = tag("tbody", (_line(name, pairs) for name, pairs in grid.lines()))
    caption = tag(
        "caption",
        f"Memory of a device in per cent of its budget, by {grid.row} and {grid.column}; "
        "`no` where nothing fits",
    )
    return tag("div", tag("table", caption, head, body, id="heat"), class_="heat")


def heat_data(grid: Grid) -> Element:
    """The data of each pair for the script; repeated values are replaced by their index."""
    layouts, whys, budgets = _Index(), _Index(), _Index()

    def cell(row: Row | None) -> Any:
        if row is None:
            return 0
        if not row["fits"]:
            return [whys.of(row.get("why") or "nothing fits")]
        return [
            layouts.of(tuple(row[name] for name in _LAYOUT)),
            round(row["required_bytes"] / MIB),
            budgets.of(round(row["budget_bytes"] / MIB)),
            row["tokens_per_second"],
            row["samples_per_second"],
            row["cost_dollars"],
        ]

    cells = [[cell(row) for row in pairs] for _, pairs in grid.lines()]
    found: list[tuple[Any, ...]] = layouts.values
    return data(
        "fleet-data",
        {
            "row": grid.row,
            "column": grid.column,
            "bounds": _BOUNDS,
            "rows": grid.rows,
            "columns": grid.columns,
            "layouts": found,
            "words": sorted({engine_word(each[1], each[2]) for each in found}, key=_engine_order),
            "precisions": sorted({each[0] for each in found}),
            "whys": whys.values,
            "budgets": budgets.values,
            "cells": cells,
        },
    )


def heat_controls(grid: Grid) -> list[Element]:
    """Controls that select what the cells show, and which rows and columns are shown."""
    metrics = (tag("option", text, value=name) for name, text in _METRICS.items())
    fits = {
        "all": "all",
        "some": "something fits",
        "every": "everything fits",
        "lacking": "something does not fit",
        "none": "nothing fits",
    }
    states = (tag("option", text, value=name) for name, text in fits.items())
    controls = tag(
        "div",
        tag("label", "cells show", tag("select", metrics, id="heat-metric")),
        tag("label", f"find a {grid.row}", tag("input", type="search", id="heat-rows")),
        tag("label", f"find a {grid.column}", tag("input", type="search", id="heat-columns")),
        tag("label", f"{grid.row}s where", tag("select", states, id="heat-fits")),
        tag("span", role="status", class_="found", id="heat-status"),
        class_="controls script-only",
    )
    steps = [tag("span", f"{bound}", class_=f"q{at}") for at, bound in enumerate(_BOUNDS)]
    ramp = tag(
        "p",
        tag("span", "from ", class_="quiet"),
        tag("span", steps, class_="ramp"),
        tag("span", " ", class_="quiet"),
        tag("span", tag("span", "no", class_="no"), class_="key-no"),
        tag("span", " nothing fits", class_="quiet"),
    )
    detail = tag(
        "div",
        tag("p", tag("strong", "A cell")),
        tag(
            "p",
            tag("span", "Arrow keys move between cells; details of the selected cell appear here."),
        ),
        id="heat-detail",
        class_="detail script-only",
        role="status",
    )
    return [controls, ramp, detail]


def engine_word(engine: str, stage: int) -> str:
    """A layout's engine as a cell shows it."""
    if engine == "deepspeed":
        return f"ZeRO {stage}"
    return "one" if engine == "none" else engine


def _engine_order(word: str) -> tuple[bool, bool, str]:
    return word.startswith("ZeRO"), word != "one", word


class _Index(Struct):
    """Distinct values in the order of their first use."""

    _known: dict[Any, int] = field(default_factory=dict)

    def of(self, value: Any) -> int:
        """The index of a value, which is added if it is new."""
        return self._known.setdefault(value, len(self._known))

    @property
    def values(self) -> list[Any]:
        """All values in the order of their index."""
        return list(self._known)


def _heading(name: str, *, turned: bool) -> Element:
    content = (name, tag("span"))
    class_ = "tall" if turned else None
    button = tag("button", *content, type="button", title=name, class_=class_)
    return tag("th", button, scope="col")


def _line(name: str, pairs: Sequence[Row | None]) -> Element:
    fitting = sum(bool(row and row["fits"]) for row in pairs)
    there = sum(row is not None for row in pairs)
    cells = map(_cell, pairs)
    count = tag("td", f"{fitting} of {there}")
    return tag("tr", tag("th", name, scope="row", title=name), count, cells)


def _cell(row: Row | None) -> Element:
    if row is None:
        return tag("td", class_="no")
    if not row["fits"]:
        return tag("td", "no", class_="no")
    percent = 100 * row["required_bytes"] / row["budget_bytes"]
    step = bisect_right(_BOUNDS, percent) - 1
    return tag("td", str(int(percent + 0.5)), class_=f"q{step}")
