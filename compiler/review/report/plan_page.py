"""The page about one plan, or about why there is none."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.driver import Planned
from tunec.compiler.ir.show import show
from tunec.compiler.review.candidates import considerations, decided
from tunec.compiler.review.outcome import Pair, expected_steps, outcome_of
from tunec.compiler.review.report.decisions import decisions_section
from tunec.compiler.review.report.faults import faults_section
from tunec.compiler.review.report.memory import lacking_section, memory_section
from tunec.compiler.review.report.page import Frame, Section, page
from tunec.compiler.review.report.search import search_section
from tunec.compiler.review.report.step_time import rate_text, seconds_text, time_section
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

    `diagnostics`: the plan's own and those of policies; `sources`: the texts that they point into.
    """
    return page(_frame(planned), tuple(_sections(planned, diagnostics, sources)))


def _frame(planned: Planned) -> Frame:
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
        yield "length", f"{about}{steps:,} steps, {_hours(steps * time.step_seconds)}"
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
        yield time_section(time, plan.batch.accumulation)
    if considered is not None:
        per_token = plan is None or plan.model.kind != "diffusion"
        search = search_section(considered, per_token=per_token)
        yield from (search,) if search else ()
    if planned.facts is not None:
        yield decisions_section(planned)
    if plan is not None:
        yield faults
