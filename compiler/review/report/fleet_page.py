"""The page about a fleet: what fits where, how, and why not."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from tunec.compiler.review.report.heat import (
    Grid,
    Row,
    engine_word,
    grid_of,
    heat_controls,
    heat_data,
    heat_table,
)
from tunec.compiler.review.report.html import tag
from tunec.compiler.review.report.page import Frame, Section, page
from tunec.compiler.review.report.tables import Cell, Column, table
from tunec.compiler.review.report.tables import Row as TableRow
from tunec.compiler.version import __version__

_NUMBER: Final = re.compile(r"\d[\d.,]*")
_REASONS: Final = 12
"""Kinds of reasons that are listed."""


def fleet_page(name: str, rows: Iterable[Row]) -> str:
    """The whole page of a fleet: `name` of its tree, and the rows of its summary."""
    every = list(rows)
    grid = grid_of(every)
    sections = (_heat(grid), _parts(every, "spec"), _parts(every, "cluster"), *_reasons(every))
    return page(_frame(name, every), sections, (heat_data(grid),))


def _frame(name: str, rows: Sequence[Row]) -> Frame:
    fitting = sum(bool(row["fits"]) for row in rows)
    specs, clusters = ({row[side] for row in rows} for side in ("spec", "cluster"))
    nowhere = specs - {row["spec"] for row in rows if row["fits"]}
    facts = (
        ("specs", f"{len(specs):,}"),
        ("clusters", f"{len(clusters):,}"),
        ("pairs", f"{len(rows):,}"),
        ("pairs that fit", f"{fitting:,}"),
        ("specs that fit nowhere", f"{len(nowhere):,}"),
    )
    verdict = f"{fitting:,} of {len(rows):,} pairs fit"
    return Frame(
        f"Fleet {name}",
        f"{len(specs):,} specs on {len(clusters):,} clusters",
        verdict,
        fitting == len(rows),
        facts,
        f"tunec {__version__}; made from {name}/tunec.lock",
    )


def _heat(grid: Grid) -> Section:
    words = (
        f"Each cell is a {grid.column} on a {grid.row}: "
        if grid.row == "cluster"
        else f"Each cell is a {grid.row} on a {grid.column}: "
    )
    content = (
        tag("p", f"{words}the memory of a device that it needs, in per cent of the budget."),
        *heat_controls(grid),
        heat_table(grid),
    )
    return Section("pairs", "What fits where", content)


def _parts(rows: Sequence[Row], side: str) -> Section:
    """One line for each spec or cluster: on how many it fits, and how."""
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        by_name.setdefault(row[side], []).append(row)
    other = "cluster" if side == "spec" else "spec"
    columns = (
        Column(side),
        Column(f"{other}s that fit", is_number=True),
        Column("memory of budget", is_number=True),
        Column("tokens/s", is_number=True),
        Column("precision"),
        Column("engine"),
    )
    lines = [_part(name, by_name[name]) for name in sorted(by_name)]
    name = f"{side.capitalize()}s"
    return Section(
        f"{side}s", name, (table(f"{name} of the fleet", columns, lines, sortable=True),)
    )


def _part(name: str, rows: Sequence[Row]) -> TableRow:
    fitting = [row for row in rows if row["fits"]]
    shares = [100 * row["required_bytes"] / row["budget_bytes"] for row in fitting]
    speeds = [row["tokens_per_second"] for row in fitting]
    engines = (engine_word(row["engine"], row["zero"]) for row in fitting)
    return (
        name,
        Cell(f"{len(fitting):,} of {len(rows):,}", len(fitting) / len(rows)),
        _range(shares, "%"),
        _range(speeds, ""),
        _counted(row["precision"] for row in fitting),
        _counted("one process" if word == "one" else word for word in engines),
    )


def _range(values: Sequence[float], unit: str) -> Cell:
    if not values:
        return Cell("—", -1.0)
    low, high = f"{min(values):,.0f}", f"{max(values):,.0f}"
    text = low if low == high else f"{low} to {high}"
    return Cell(f"{text} {unit}".rstrip(), max(values))


def _counted(words: Iterable[str]) -> str:
    """`bf16: 40, fp32: 2`: each word with how often it is there, the most frequent first."""
    counts = sorted(Counter(words).items(), key=lambda item: (-item[1], item[0]))
    if len(counts) == 1:
        return counts[0][0]
    return ", ".join(f"{word}: {count:,}" for word, count in counts) or "—"


def _reasons(rows: Sequence[Row]) -> Iterator[Section]:
    """Why pairs do not fit: messages that differ only in their numbers are one kind."""
    kinds: dict[str, list[Row]] = {}
    for row in rows:
        if not row["fits"]:
            kinds.setdefault(_NUMBER.sub("…", row.get("why") or "nothing fits"), []).append(row)
    if not kinds:
        return
    ranked = sorted(kinds.values(), key=lambda each: (-len(each), each[0]["why"]))
    columns = (Column("for example"), Column("pairs", is_number=True), Column("reason"))
    lines = [
        (f"{of[0]['spec']} on {of[0]['cluster']}", Cell(f"{len(of):,}", len(of)), of[0]["why"])
        for of in ranked[:_REASONS]
    ]
    more = len(ranked) - _REASONS
    rest = tag("p", f"{more:,} more kinds of reasons are in the lock.") if more > 0 else None
    yield Section("reasons", "Why not", (table("Why pairs do not fit", columns, lines), rest))
