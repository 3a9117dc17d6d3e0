"""Lines of text about a run compared with its plan, and what follows."""

from collections.abc import Iterator, Mapping
from math import expm1

from tunec.compiler.analyses.time.pace import by_resource, resource_of
from tunec.compiler.calibrate.attribution import is_alone, part_of
from tunec.compiler.calibrate.smoke import ConditionResult
from tunec.schemas.hardware.measurements import Measured, Memory, Ran, Seconds
from tunec.schemas.terms import Resource
from tunec.schemas.units import format_bytes


def shown_line(each: ConditionResult) -> str:
    """The result of one condition of a short run."""
    detail = f" ({each.detail})" if each.detail else ""
    return f"{each.verdict:<8}  {each.text}{detail}"


def percent(error: float) -> str:
    """A difference of logarithms as a percentage."""
    return f"{expm1(error):.0%}"


def run_lines(run: Ran, before: Measured | None, after: Measured) -> Iterator[str]:
    """One run: its time and memory, term by term, and what it changes."""
    yield f"{run.name} on {run.devices} device{'' if run.devices == 1 else 's'}, {run.when}"
    for each in run.files:
        yield f"  read     {each}"
    if run.seconds is not None:
        yield from _time_lines(run.seconds, before, after)
    if run.memory is not None:
        yield from _memory_lines(run.memory)


def _time_lines(step: Seconds, before: Measured | None, after: Measured) -> Iterator[str]:
    accounted = sum(step.accounted.values())
    steps = f"{step.steps} step{'' if step.steps == 1 else 's'}"
    yield (
        f"  step     {step.measured:.4g} s measured over {steps}, {accounted:.4g} s accounted for "
        f"({step.measured / accounted - 1:+.0%}){_planned(step, before)}"
    )
    yield f"    {'':<14} {'accounted':>10} {'factor':>7} {'now':>10}"
    for name, seconds in by_resource(step.accounted).items():
        factor = after.factors.get(name, 1.0)
        terms = ", ".join(term for term in step.accounted if resource_of(term) == name)
        now = seconds * factor
        yield f"    {name:<14} {seconds:>8.4g} s {factor:>7.3f} {now:>8.4g} s  {terms}"
    if is_alone(step, after.factors):
        yield "    far from the account or other runs: counts little until another run agrees"
    for part, measured in step.parts.items():
        own = sum(time for term, time in step.accounted.items() if part_of(term) == part)
        yield f"    {part:<14} {own:>8.4g} s accounted for, {measured:.4g} s measured"


def _planned(step: Seconds, before: Measured | None) -> str:
    """The forecast with the runs known before."""
    if before is None or not before.factors:
        return ""
    forecast = sum(
        time * before.factors.get(resource_of(term), 1.0) for term, time in step.accounted.items()
    )
    return f"; {forecast:.4g} s by the runs before ({step.measured / forecast - 1:+.0%})"


def _memory_lines(memory: Memory) -> Iterator[str]:
    if memory.allocated is not None:
        change = memory.allocated / memory.accounted - 1 if memory.accounted else 0.0
        yield (
            f"  tensors  {format_bytes(memory.allocated)} at most, "
            f"{format_bytes(memory.accounted)} accounted for ({change:+.1%})"
        )
    if memory.reserved is not None:
        yield f"  reserved {format_bytes(memory.reserved)} by torch's allocator"
    if memory.used is not None:
        beside = memory.beside
        apart = "" if beside is None else f", {format_bytes(beside)} of it beside the allocator"
        yield f"  in use   {format_bytes(memory.used)} by the driver{apart}"


def outcome_lines(before: Measured | None, after: Measured) -> Iterator[str]:
    """What plans on the cluster use from the runs, before and now."""
    names = dict.fromkeys((*(before.factors if before else ()), *after.factors))
    earlier = before.factors if before else {}
    changes = [_change(name, earlier, after.factors) for name in names]
    if changes:
        yield f"factors  {', '.join(changes)}"
    if after.error is not None:
        runs = sum(each.seconds is not None for each in after.runs)
        many = "the run" if runs == 1 else f"half of {runs} runs"
        yield (
            f"time     off by {percent(after.error.before)} in {many} without the factors, "
            f"{percent(after.error.after)} with them"
        )
    yield f"margin   {_margin(after)}"


def _change(
    name: Resource, before: Mapping[Resource, float], after: Mapping[Resource, float]
) -> str:
    old, new = before.get(name, 1.0), after.get(name, 1.0)
    return f"{name} {old:.3f} -> {new:.3f}"


def _margin(found: Measured) -> str:
    said = []
    if found.margin.tensors > 1:
        said.append(f"{found.margin.tensors:.3f} times the tensors accounted for")
    for ranks, size in found.margin.beside.items():
        said.append(f"{format_bytes(size)} beside the allocator in runs of {ranks}")
    return ", ".join(said) or "as assumed: no run had more"
