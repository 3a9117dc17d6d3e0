"""Hold the default plans of the catalogue's models against the traces of their own layouts.

`python benchmarks/plan_sweep.py [MODEL...] [--turns 1] [-j 1] [--seconds 300] [--gibibytes 8]`
traces plans of each model in processes of their own: as many as there are turns, of a method and a
cluster that differ from model to model. Cards of one config are one model, and a method that fits
no cluster has no plan to trace. `plan_sweep.jsonl` keeps the rows, of which `trace_table.py
--render` makes a part of `docs/memory-accuracy.md`. `--missing` traces those alone that have no row
yet, or that of another plan than today's, so that a sweep can be broken off; `--account` traces
nothing, and renews the accounts of the rows that are kept. Seconds are those of a processor.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Final

from card_sweep import shuffled
from forks import Row, answers
from msgspec import Struct

from tunec.compiler.driver import Planned, plan
from tunec.compiler.frontend.load import load_mapping
from tunec.compiler.ir.values import plain
from tunec.schemas.models.catalogue import card, card_names

ROWS: Final = Path(__file__).with_suffix(".jsonl")
METHODS: Final = ("full", "lora", "qlora")
CLUSTERS: Final = ("rtx-4090-x1", "a100-80g-x1", "a100-80g-x4", "h100-80g-x8")
SEARCHED: Final = (
    *("parallel.engine", "zero.stage", "fsdp.sharding", "activation_checkpointing.mode"),
    *("batch.micro", "batch.accumulation", "states.gradients"),
)
"""The slots of a layout that are chosen by its speed: pinned, they give a plan's layout again."""


class Cell(Struct, frozen=True):
    """One model on one cluster, by one method."""

    model: str
    method: str
    hardware: str

    @property
    def name(self) -> str:
        """The cell in words."""
        return f"{self.model} {self.method} {self.hardware}"

    def planned(self, layout: Mapping[str, Any] | None = None) -> Planned:
        """The default plan, or that of the layout of an earlier one."""
        data = {"train": "train.jsonl", "samples": 1000}
        spec = {"tunec": 1, "model": self.model, "method": self.method, "data": data}
        spec |= {"hardware": self.hardware, "pin": dict(layout or {})}
        return plan(load_mapping(spec), repairing=False)


def models() -> list[str]:
    """A card's name for each model: the first of those with one config and the same samples."""
    found: dict[str, str] = {}
    for name in card_names():
        known = card(name)
        found.setdefault(repr((known.config, known.reads_images, known.edits)), name)
    return list(found.values())


def cells(model: str) -> Iterator[Cell]:
    """Every method on every cluster, beginning where the model's name says."""
    begin = int(sha256(model.encode()).hexdigest(), 16)
    for turn in range(begin, begin + len(METHODS) * len(CLUSTERS)):
        yield Cell(model, METHODS[turn % len(METHODS)], CLUSTERS[turn % len(CLUSTERS)])


def fitting(model: str, turns: int) -> list[Cell]:
    """The first cells of a model that have a plan."""
    return list(islice((each for each in cells(model) if each.planned().ok), turns))


def accounted(row: Row) -> int:
    """The peak of a row's layout by the account of today, over the phases that its trace has."""
    from tunec.compiler.analyses.memory.account import account, samples
    from tunec.compiler.cli.trace_command import subject_of
    from tunec.compiler.tracing.comparison import phase_of

    found = cell_of(row).planned(row["layout"])
    if found.memory is None:
        raise ValueError(f"{cell_of(row).name} has no plan of {row['layout']}")
    asked = subject_of(found, found.memory)
    lines = account(asked.workload, asked.layout).lines
    return max(
        each.at(samples(each, asked.layout)) for each in lines if phase_of(each) in row["phases"]
    )


def layout_of(found: Planned) -> dict[str, Any] | None:
    """The slots that give a plan's layout again; None if there is no plan."""
    if found.plan is None:
        return None
    values = found.plan.values()
    return {slot: plain(values[slot]) for slot in SEARCHED}


def of_today(row: Row) -> bool:
    """Whether the default plan of a row's cell still has the row's layout."""
    return "refused" in row or layout_of(cell_of(row).planned()) == row["layout"]


def traced(cell: Cell) -> Row:
    """The peak of a cell's default plan by its account and by its trace."""
    from tunec.compiler.cli.trace_command import beside

    found = cell.planned()
    compared = beside(found)
    layout = layout_of(found)
    if layout is None or found.plan is None or found.memory is None:
        raise ValueError(f"{cell.name} has no plan")
    again = cell.planned(layout).memory
    if again is None or again.layout != found.memory.layout:
        raise ValueError(f"other slots than {', '.join(SEARCHED)} make the layout")
    return {
        "layout": layout,
        "account_bytes": compared.accounted_bytes,
        "traced_bytes": compared.trace.peak.peak_bytes,
        "phases": {each.name: each.peak_bytes for each in compared.trace.phases},
        "room_bytes": found.plan.devices.budget - sum(found.memory.margin.values()),
        "seconds": round(compared.trace.seconds, 1),
        "versions": dict(compared.trace.versions),
    }


def error_of(row: Row) -> float:
    """The relative error of a row's account: positive if it is above the trace."""
    return float(row["account_bytes"] / row["traced_bytes"]) - 1


def fits(row: Row) -> bool:
    """Whether the traced bytes and the account's margin fit the device."""
    return bool(row["traced_bytes"] <= row["room_bytes"])


def kept() -> dict[str, Row]:
    """The rows that are kept, by the name of their cell."""
    lines = ROWS.read_text("utf-8").splitlines() if ROWS.exists() else []
    return {cell_of(row).name: row for row in map(json.loads, lines)}


def cell_of(row: Row) -> Cell:
    """The cell of a row."""
    return Cell(row["model"], row["method"], row["hardware"])


def renewed(row: Row) -> Row:
    """A row with the account of today."""
    return row if "refused" in row else {**row, "account_bytes": accounted(row)}


def keep(rows: Mapping[str, Row]) -> None:
    """Write the rows, sorted by their cells."""
    ROWS.write_text("".join(json.dumps(rows[name]) + "\n" for name in sorted(rows)), "utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Trace plans of the requested models, and keep each row as it finishes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("-j", "--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--gibibytes", type=int, default=8)
    parser.add_argument("--missing", action="store_true")
    parser.add_argument("--account", action="store_true")
    options = parser.parse_args(arguments)
    rows = kept()
    if options.account:
        keep({name: renewed(row) for name, row in rows.items()})
        return 0
    names, limits = options.models or shuffled(models()), (options.seconds, options.gibibytes)
    done = {name for name, row in rows.items() if options.missing and of_today(row)}
    asked = [each for name in names for each in fitting(name, options.turns)]
    by_name = {each.name: each for each in asked if each.name not in done}
    for name, row in sweep(by_name, options.jobs, limits):
        rows[name] = row
        keep(rows)
        sys.stdout.write(f"{name}: {row.get('refused') or f'{100 * error_of(row):+.2f} %'}\n")
        sys.stdout.flush()
    return 0


def sweep(
    asked: Mapping[str, Cell], jobs: int, limits: tuple[int, int]
) -> Iterator[tuple[str, Row]]:
    """Trace each cell in a fork of this process, `jobs` at once; yield rows as they finish."""
    import torch
    from trace_table import import_all

    import_all()
    torch.set_num_threads(1)
    for name, row in answers({n: partial(traced, each) for n, each in asked.items()}, jobs, limits):
        cell = asked[name]
        head = {"model": cell.model, "method": cell.method, "hardware": cell.hardware}
        yield name, {**head, **row}


if __name__ == "__main__":
    sys.exit(main())
