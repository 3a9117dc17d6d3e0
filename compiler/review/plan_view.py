"""A plan for people (text) and for machines (JSON)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tunec.compiler.analyses.measurements import is_outdated
from tunec.compiler.analyses.memory.account import Account
from tunec.compiler.analyses.memory.calibration import Calibration
from tunec.compiler.analyses.time.account import TimeAccount
from tunec.compiler.driver import Planned
from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.slots import GROUPS, SLOTS
from tunec.compiler.ir.values import plain, show
from tunec.compiler.review.explain import definition_json
from tunec.compiler.review.measurements import measured_lines, measured_of
from tunec.compiler.review.outcome import doubt_of
from tunec.schemas.units import format_bytes

_WIDTH = 34
_VALUE = 24
"""Columns of the values; a longer value does not widen the column of the others."""


def plan_json(planned: Planned) -> dict[str, Any]:
    """The plan as the JSON of `tunec plan --format json`."""
    found = [each.to_json() for each in planned.diagnostics]
    if planned.plan is None or planned.memory is None or planned.time is None:
        return {"plan": None, "decisions": None, "memory": None, "time": None, "diagnostics": found}
    return {
        "plan": {path: plain(value) for path, value in planned.plan.values().items()},
        "decisions": dict(_decisions(planned)),
        "memory": _memory_json(planned.plan, planned.memory),
        "time": _time_json(planned.time, doubt_of(planned)),
        **_measured_json(planned),
        "diagnostics": found,
    }


def _decisions(planned: Planned) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in SLOTS:
        winner = planned.ledger.winner(path)
        if winner is not None:
            yield path, definition_json(winner, planned)


def _memory_json(plan: Plan, memory: Account) -> dict[str, Any]:
    return {
        "gpu": {
            "peak_bytes": memory.peak_bytes,
            "required_bytes": memory.required_bytes,
            "reading_bytes": _reading(plan, memory),
            "budget_bytes": plan.devices.budget,
            "reserve_bytes": plan.devices.reserve,
            "peak_phase": memory.peak_phase,
            "calibration": memory.calibration,
            "terms": dict(memory.terms),
            "margin": dict(memory.margin),
            "phases": {name: dict(terms) for name, terms in memory.phases.items()},
        },
        "host": {
            "peak_bytes": memory.host.peak_bytes,
            "required_bytes": memory.host.peak_bytes,
            "budget_bytes": plan.devices.host_budget,
            "peak_phase": memory.host.peak_phase,
            "terms": dict(memory.host.terms),
            "phases": {name: dict(terms) for name, terms in memory.host.phases.items()},
        },
    }


def _time_json(time: TimeAccount, doubt: str | None) -> dict[str, Any]:
    about = {
        "step_seconds": time.step_seconds,
        "tokens_per_second": time.tokens_per_second,
        "samples_per_second": time.samples_per_second,
        "terms": dict(time.terms),
    }
    return {**about, "doubt": doubt} if doubt else about


def _measured_json(planned: Planned) -> dict[str, Any]:
    """Results of measured runs on the cluster, as the accounts use them; empty without any."""
    found = measured_of(planned)
    if found is None:
        return {}
    about = {
        "cluster": found.cluster,
        "runs": len(found.runs),
        "factors": {} if is_outdated(found) else dict(found.factors),
        "margin": found.margin.model_dump(mode="json"),
    }
    return {"measured": about}


def plan_text(planned: Planned) -> str:
    """The whole plan as sections of aligned lines; empty if there is none."""
    if planned.plan is None or planned.memory is None or planned.time is None:
        return ""
    sections: list[Iterable[str]] = [*_groups(planned)]
    sections += [_memory(planned.plan, planned.memory), _host(planned.plan, planned.memory)]
    sections.append(
        [
            *_time(planned.time, doubt_of(planned)),
            *(f"  {each}" for each in measured_lines(planned)),
        ]
    )
    return "\n\n".join("\n".join(section) for section in sections)


def _groups(planned: Planned) -> Iterator[list[str]]:
    """Each group's slots with their values and reasons, in columns that align across groups."""
    winners = [each for each in map(planned.ledger.winner, SLOTS) if each is not None]
    rows = [
        (SLOTS[each.slot].group, each.slot.partition(".")[2], show(each.slot, each.value), each)
        for each in winners
    ]
    wide = max(len(name) for _, name, _, _ in rows)
    deep = max(len(value) for _, _, value, _ in rows if len(value) <= _VALUE)
    for group in GROUPS:
        own = [row for row in rows if row[0] == group]
        lines = (f"  {n:<{wide}}  {value:<{deep}}  {each.reason}" for _, n, value, each in own)
        yield [group, *(line.rstrip() for line in lines)]


def _memory(plan: Plan, memory: Account) -> Iterator[str]:
    needs, budget = format_bytes(memory.required_bytes), format_bytes(plan.devices.budget)
    yield f"memory of a device: {needs} of {budget}, highest in {memory.peak_phase}"
    if memory.workload.calibration is not None:
        yield f"  {_traced(memory, memory.workload.calibration)}"
    yield from _terms(memory.terms)
    yield from _terms({f"margin: {name}": value for name, value in memory.margin.items()})
    left = plan.devices.budget - memory.required_bytes
    if plan.devices.reserve:
        yield from _terms({"kept in reserve": min(left, plan.devices.reserve)})
    for name, terms in memory.phases.items():
        yield f"  {'phase ' + name:<{_WIDTH}} {format_bytes(sum(terms.values())):>12}"
    if memory.vendor != "nvidia":
        return
    shown = format_bytes(_reading(plan, memory))
    yield f"  {'nvidia-smi shows, in 95 % of runs':<{_WIDTH}} {shown:>12} at most"


def _reading(plan: Plan, memory: Account) -> int:
    """The most that nvidia-smi will show, in bytes: at most the device's memory."""
    return min(memory.reading_bytes, plan.devices.memory)


def _traced(memory: Account, known: Calibration) -> str:
    """Whether the stored trace is used, and with which libraries it was made."""
    if memory.calibration is None:
        return f"calculated: the trace in {known.name} is of another run of the model"
    used = ", ".join(f"{name} {version}" for name, version in known.versions)
    return f"as traced in {known.name} with {used}"


def _host(plan: Plan, memory: Account) -> Iterator[str]:
    budget = plan.devices.host_budget
    of = f" of {format_bytes(budget)}" if budget is not None else ""
    if memory.workload.shares_host_memory:
        of = " of the same memory"
    needs, highest = format_bytes(memory.host.peak_bytes), memory.host.peak_phase
    yield f"memory of a node's host: {needs}{of}, highest in {highest}"
    yield from _terms(memory.host.terms)
    for name, terms in memory.host.phases.items():
        yield f"  {'phase ' + name:<{_WIDTH}} {format_bytes(sum(terms.values())):>12}"


def _terms(terms: Mapping[str, int]) -> Iterator[str]:
    for name, value in terms.items():
        if value:
            yield f"  {name:<{_WIDTH}} {format_bytes(value):>12}"


def _time(time: TimeAccount, doubt: str | None) -> Iterator[str]:
    rate = f"{time.samples_per_second:.3g} samples/s"
    if time.tokens_per_second:
        rate = f"{time.tokens_per_second:,.0f} tokens/s, {rate}"
    yield f"time of a step: {time.step_seconds:.3g} s, {rate}"
    for name, seconds in time.terms.items():
        if seconds:
            yield f"  {name:<{_WIDTH}} {seconds:>10.4f} s"
    if doubt is not None:
        yield f"  in doubt: {doubt}"
