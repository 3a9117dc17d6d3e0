"""The page about one plan, or about why there is none, and the page about a fleet."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.driver import Planned
from tunec.compiler.ir.values import show
from tunec.compiler.review.candidates import considerations, decided
from tunec.compiler.review.outcome import Pair, doubt_of, expected_steps, is_at_most, outcome_of
from tunec.compiler.review.report.faults import faults_section
from tunec.compiler.review.report.heat import (
    Grid,
    Row,
    engine_word,
    grid_of,
    heat_controls,
    heat_data,
    heat_table,
)
from tunec.compiler.review.report.html import Cell, Column, Frame, Section, page, table, tag
from tunec.compiler.review.report.html import Row as TableRow
from tunec.compiler.review.report.search import search_section
from tunec.compiler.review.report.sections import (
    decisions_section,
    lacking_section,
    memory_section,
    rate_text,
    seconds_text,
    time_section,
)
from tunec.compiler.version import __version__
from tunec.schemas.units import format_bytes

_SHOWN = (
    ("precision", "precision.compute"),
    ("engine", "parallel.engine"),
    ("ZeRO stage", "zero.stage"),
    ("offload", "zero.offload_optimizer"),
    ("recomputation", "activation_checkpointing.mode"),
    ("optimizer", "optimizer.name"),
)


def plan_page(
    planned: Planned, diagnostics: Sequence[Diagnostic], sources: Mapping[str, str]
) -> str:
    """The whole page of a planned spec.

    `diagnostics` are those of the plan and of policies; `sources` are the texts they point into.
    """
    return page(_plan_frame(planned), tuple(_sections(planned, diagnostics, sources)))


def _plan_frame(planned: Planned) -> Frame:
    spec, facts = planned.loaded.spec, planned.facts
    if facts is None:
        title = spec.name if spec else "a spec that could not be read"
        return Frame(
            title, "", "there is no plan: see the diagnostics", False, (), _footer(planned)
        )
    name, cluster = facts.spec.name, facts.cluster.name
    fits = planned.memory is not None and planned.plan is not None
    verdict = _verdict(planned) if fits else "there is no plan: see the diagnostics"
    subtitle = f"fine-tuning {facts.model.path}, by {facts.spec.method.name}, on {cluster}"
    shown = tuple(_facts(planned, decided(planned)) if fits else ())
    return Frame(f"{name} on {cluster}", subtitle, verdict, fits, shown, _footer(planned))


def _verdict(planned: Planned) -> str:
    if planned.plan is None or planned.memory is None:
        return ""
    needs, budget = planned.memory.required_bytes, planned.plan.devices.budget
    return (
        f"fits: {format_bytes(needs)} of {format_bytes(budget)} a device, "
        f"{format_bytes(budget - needs)} ({1 - needs / budget:.0%}) to spare"
    )


def _facts(planned: Planned, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    plan, time = planned.plan, planned.time
    if plan is None or time is None:
        return
    there = plan.devices.nodes * plan.devices.per_node
    yield "devices", f"{plan.parallel.world} of {there} x {plan.devices.model}"
    for name, slot in _SHOWN:
        yield name, show(slot, values[slot])
    batch = plan.batch
    yield (
        "batch",
        f"{batch.micro} x {batch.accumulation} x {plan.parallel.data} = {batch.global_} samples",
    )
    yield "step", seconds_text(time.step_seconds)
    yield "speed", rate_text(time)
    needs = outcome_of(planned, Pair("", "")).needs
    steps = expected_steps(plan)
    if steps is not None:
        about = "" if plan.schedule.steps else "about "
        most = "at most " if is_at_most(planned) else ""
        yield "length", f"{about}{steps:,} steps, {most}{_hours(steps * time.step_seconds)}"
    if needs is not None and needs.run_cost is not None:
        yield "cost", f"${needs.run_cost:,.2f}"


def _hours(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60:,} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def _footer(planned: Planned) -> str:
    read = ", ".join(f"{name} (SHA-256 {digest[:16]}…)" for name, digest in planned.loaded.files)
    return f"tunec {__version__}" + (f"; made from {read}" if read else "")


def _sections(
    planned: Planned, diagnostics: Sequence[Diagnostic], sources: Mapping[str, str]
) -> Iterator[Section]:
    faults = faults_section(diagnostics, sources)
    considered = considerations(planned)
    plan, memory, time = planned.plan, planned.memory, planned.time
    if plan is None or memory is None or time is None:
        yield faults
        lacking = lacking_section(considered) if considered else None
        yield from (lacking,) if lacking else ()
    else:
        yield memory_section(plan, memory)
        yield time_section(time, plan.batch.accumulation, doubt_of(planned))
    if considered is not None:
        per_token = plan is None or plan.model.kind != "diffusion"
        search = search_section(considered, per_token=per_token)
        yield from (search,) if search else ()
    if planned.facts is not None:
        yield decisions_section(planned)
    if plan is not None:
        yield faults


_NUMBER: Final = re.compile(r"\d[\d.,]*")
_REASONS: Final = 12
"""How many kinds of reasons are listed."""


def fleet_page(name: str, rows: Iterable[Row]) -> str:
    """The whole page of a fleet, from the name of its tree and the rows of its summary."""
    every = list(rows)
    grid = grid_of(every)
    sections = (_heat(grid), _parts(every, "spec"), _parts(every, "cluster"), *_reasons(every))
    return page(_fleet_frame(name, every), sections, (heat_data(grid),))


def _fleet_frame(name: str, rows: Sequence[Row]) -> Frame:
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
    """A line for each spec or cluster: with how many of the other side it fits, and how."""
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
    """`bf16: 40, fp32: 2`: each word with its count, the most frequent first."""
    counts = sorted(Counter(words).items(), key=lambda item: (-item[1], item[0]))
    if len(counts) == 1:
        return counts[0][0]
    return ", ".join(f"{word}: {count:,}" for word, count in counts) or "—"


def _reasons(rows: Sequence[Row]) -> Iterator[Section]:
    """Why pairs do not fit; messages that differ only in their numbers are combined."""
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
