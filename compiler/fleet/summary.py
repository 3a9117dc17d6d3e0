"""The summary of a fleet: what fits where, and how; a table that can be sorted."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.diagnostics.wording import json_text
from tunec.compiler.fleet.lock import UNREADABLE, Line
from tunec.schemas.units import format_bytes

COLUMNS: Final = (
    "spec",
    "cluster",
    "fits",
    "precision",
    "engine",
    "zero",
    "offload",
    "checkpointing",
    "micro",
    "accumulation",
    "global",
    "devices",
    "required_bytes",
    "budget_bytes",
    "tokens_per_second",
    "samples_per_second",
    "cost_dollars",
    "why",
)
"""Keys of a row, as CSV and JSON have them, and as `--sort` names them."""
UNCHECKED: Final = "unchecked"
"""Key of a row: rules that failed on the files, which is a bug; absent where none did."""
HEADERS: Final = {"memory": "required_bytes", "tokens/s": "tokens_per_second"}
"""What the table calls two of them; `--sort` takes these names too."""
_SHOWN: Final = ("spec", "cluster", "precision", "zero", "offload", "checkpointing", "micro")
_MOST: Final = 60
"""Rows that a terminal is shown; CSV and JSON have all."""

Row = Mapping[str, Any]


def rows(lines: Iterable[Line]) -> Iterator[Row]:
    """The rows of a lock, in its order; a line that cannot be read has none."""
    for each in lines:
        try:
            summary = each.summary()
        except UNREADABLE:
            continue
        yield {"spec": each.pair.spec, "cluster": each.pair.cluster, **summary}


class Tally(Struct):
    """What all rows that went by come to."""

    all_fit: bool = True
    failed: frozenset[str] = frozenset()
    """Rules that failed on the files of some."""

    def counting(self, found: Iterable[Row]) -> Iterator[Row]:
        """The rows unchanged, noting as they pass whether each fits and was checked."""
        for row in found:
            self.all_fit = self.all_fit and bool(row["fits"])
            self.failed = self.failed.union(row.get(UNCHECKED, ()))
            yield row


def ordered(found: Iterable[Row], column: str | None) -> Iterable[Row]:
    """Rows by a column, what has no value last; numbers from the largest down."""
    if column is None:
        return found
    name = HEADERS.get(column, column)
    return sorted(found, key=lambda row: _place(row.get(name)))


def _place(value: Any) -> tuple[int, float, str]:
    if value is None:
        return 2, 0.0, ""
    if isinstance(value, bool | int | float):
        return 0, -float(value), ""
    return 1, 0.0, str(value)


def as_text(found: Iterable[Row]) -> str:
    """Aligned columns; where there are many rows the first, and how many more there are."""
    header = (*_SHOWN, *HEADERS)
    shown: list[Sequence[str]] = [header]
    total = fitting = 0
    for row in found:
        total += 1
        fitting += bool(row["fits"])
        if total <= _MOST:
            shown.append(_cells(row))
    widths = [max(len(line[at]) for line in shown) for at in range(len(header))]
    lines = ["  ".join(f"{c:<{w}}" for c, w in zip(line, widths, strict=True)) for line in shown]
    more = [f"... and {total - _MOST:,} more (--format csv lists all)"] if total > _MOST else []
    counted = f"{fitting:,} of {total:,} fit"
    return "\n".join([line.rstrip() for line in lines] + [*more, counted])


def _cells(row: Row) -> tuple[str, ...]:
    if not row["fits"]:
        said = "refused" if row.get("refused") else "does not fit"
        return (row["spec"], row["cluster"], "-", "-", "-", "-", "-", said, "-")
    memory = f"{format_bytes(row['required_bytes'])} of {format_bytes(row['budget_bytes'])}"
    speed = row["tokens_per_second"]
    words = (str(row[name]) for name in _SHOWN)
    return (*words, memory, f"{speed:,.0f}" if speed else "-")


def as_markdown(found: Iterable[Row]) -> str:
    """A table for a page or a comment."""
    lines = [f"| {' | '.join((*_SHOWN, *HEADERS))} |", "| --- " * 9 + "|"]
    lines += [
        f"| {' | '.join(each.replace('|', chr(92) + '|') for each in _cells(row))} |"
        for row in found
    ]
    return "\n".join(lines)


def as_csv(found: Iterable[Row]) -> str:
    """Every column of every row."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([row.get(name, "") for name in COLUMNS] for row in found)
    return text.getvalue()


def as_json(found: Iterable[Row]) -> str:
    """One object a row."""
    return json_text(list(found))


FORMATS: Final = {"text": as_text, "markdown": as_markdown, "csv": as_csv, "json": as_json}
"""By the word of `--format`."""
