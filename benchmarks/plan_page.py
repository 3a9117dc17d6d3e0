"""The part of docs/memory-accuracy.md about the catalogue's default plans, from `plan_sweep`."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Final

import yaml
from forks import Row
from plan_sweep import CLUSTERS, METHODS, cell_of, error_of, fits, kept

from tunec.schemas.caches import cached
from tunec.schemas.units import format_bytes

REASONS: Final = Path(__file__).with_name("plan_sweep_reasons.yaml")
"""Why accounts of some models' plans are off."""
WIDE: Final = 0.01
"""The error beyond which a plan is named."""
_HEAD: Final = """\
## Default plans of the catalogue

What `tunec plan` decides for a model of the catalogue by one method on one cluster, of which the
spec has nothing but the names, against a trace of that very layout. Cards of one config are one
model. `just plan-sweep` traces plans of more models, or anew; `benchmarks/plan_sweep.jsonl` keeps
them, and `tests/tracing` holds each against the account of the day. A plan whose traced bytes and
margin exceed the device is a false fit."""


def sweep_lines() -> Iterator[str]:
    """The section's lines."""
    rows = list(kept().values())
    traced = [row for row in rows if "refused" not in row]
    models = {row["model"] for row in traced}
    versions = sorted({item for row in traced for item in row["versions"].items()})
    yield _HEAD
    yield ""
    yield f"Versions: {', '.join(f'{name} {version}' for name, version in versions)}."
    yield ""
    yield (
        f"{len(traced)} plans of {len(models)} models, of which "
        f"{sum(not fits(row) for row in traced)} are false fits:"
    )
    yield ""
    yield from _figures(traced)
    yield ""
    yield from _wide(traced)
    yield from _untraced([row for row in rows if "refused" in row], models)


def reason_for(row: Row) -> str | None:
    """Why the account of a row's plan is off, if that is known."""
    return reasons().get(row["model"])


@cached(1)
def reasons() -> dict[str, str]:
    """The known reasons, by model."""
    every = yaml.safe_load(REASONS.read_text("utf-8"))
    return {model: each["reason"] for each in every for model in each["models"]}


def _figures(traced: Sequence[Row]) -> Iterator[str]:
    yield "| plans | traced | median error | 95th percentile | largest | most above | most below |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    yield _line("all", traced)
    for key, values in (("method", METHODS), ("hardware", CLUSTERS)):
        for value in values:
            yield _line(value, [row for row in traced if row[key] == value])


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def _line(name: str, rows: Sequence[Row]) -> str:
    errors = [error_of(row) for row in rows]
    sizes = [abs(each) for each in errors]
    figures = median(sizes), percentile(sizes, 0.95), max(sizes)
    shown = " | ".join(f"{100 * each:.2f} %" for each in figures)
    ends = max(0, *errors), min(0, *errors)
    signed = " | ".join(f"{100 * each:+.2f} %" for each in ends)
    return f"| {name} | {len(rows)} | {shown} | {signed} |"


def _wide(traced: Iterable[Row]) -> Iterator[str]:
    wide = [row for row in traced if abs(error_of(row)) > WIDE]
    yield f"Those whose account is off by more than {100 * WIDE:.0f} %, by name:"
    yield ""
    for row in sorted(wide, key=lambda each: -abs(error_of(each))):
        why = reason_for(row)
        peak = format_bytes(row["traced_bytes"])
        off = f"{cell_of(row).name}: {100 * error_of(row):+.2f} % of {peak}"
        yield f"- {off}: {why}" if why else f"- {off}"
    yield ""


def _untraced(refused: Iterable[Row], models: set[str]) -> Iterator[str]:
    by_reason: dict[str, list[Row]] = {}
    for row in refused:
        by_reason.setdefault(row["refused"], []).append(row)
    yield "Plans that could not be traced; with names where no plan of the model was:"
    yield ""
    for reason, rows in sorted(by_reason.items(), key=lambda each: (-len(each[1]), each[0])):
        names = sorted({row["model"] for row in rows} - models)
        yield f"- {len(rows)}: {reason}" + (f" ({', '.join(names)})" if names else "")
    yield ""
