"""The layouts that a plan's search considered, each with its sums and why it was not taken."""

from collections.abc import Iterator, Mapping
from math import isqrt
from typing import Any, Final, Literal

from msgspec import Struct, field

from tunec.compiler.analyses.memory.account import Account, account
from tunec.compiler.analyses.memory.workload import Layout
from tunec.compiler.analyses.time.account import TimeAccount, step_time
from tunec.compiler.driver import Planned
from tunec.compiler.facts import Facts
from tunec.compiler.ir.plan import Draft, build_group
from tunec.compiler.ir.slots import GROUPS, SLOTS
from tunec.compiler.passes.fit.fit import problem_of
from tunec.compiler.passes.fit.problem import SHAPE_SLOTS, Problem, Shape, layout_of
from tunec.compiler.passes.fit.search import (
    Answer,
    Candidate,
    Verdict,
    chosen,
    describe,
    search,
)
from tunec.schemas.units import format_bytes

State = Literal["chosen", "fits", "device memory", "host memory", "refused"]
"""The outcome of a layout; "device memory" and "host memory" name the memory that is too small."""

_SIZES: Final = 3
"""How many micro batch sizes are shown on each side of the chosen one."""


class ConsideredLayout(Struct, frozen=True):
    """One layout that the search looked at, and its result."""

    name: str
    """Such as `ZeRO 1, checkpointing` or `micro batch 8`."""
    slots: Mapping[str, Any]
    """The values of the slots that define the layout, by path."""
    state: State
    why: str
    """Why the layout was taken or rejected."""
    micro: int = 0
    """Samples of a micro batch; the smallest layout's if memory is too small; 0 if a rule refuses
    it."""
    accumulation: int = 0
    required: int = 0
    """Bytes needed on each device, margin included; 0 if a rule refuses the layout."""
    terms: Mapping[str, int] = field(default_factory=dict)
    """The parts of `required`: the terms of the peak, then those of the margin."""
    host_required: int = 0
    """Bytes needed in the host memory of each node."""
    host_terms: Mapping[str, int] = field(default_factory=dict)
    step_seconds: float = 0.0
    """Seconds of an optimizer step, even if memory is too small for it; 0 if a rule refuses the
    layout."""
    samples_per_second: float = 0.0
    tokens_per_second: float = 0.0


class Considerations(Struct, frozen=True):
    """Everything that the search of one plan considered."""

    budget: int
    """Bytes of each device that may be used."""
    host_budget: int | None
    layouts: tuple[ConsideredLayout, ...]
    """Every layout: the chosen one, those that fit (fastest first), those too large, then the
    refused."""
    micro_batches: tuple[ConsideredLayout, ...]
    """Micro batch sizes near the chosen one, in the chosen layout; empty if nothing fits."""

    def of(self, slot: str) -> tuple[ConsideredLayout, ...]:
        """The alternatives considered for a slot; empty if the search does not decide the slot."""
        if slot == "batch.micro":
            return self.micro_batches
        return self.layouts if slot in SHAPE_SLOTS else ()


def considerations(planned: Planned) -> Considerations | None:
    """Judge every layout of a planned spec again; None if the spec could not be read."""
    if planned.facts is None:
        return None
    problem = problem_of(planned.facts, _draft(planned))
    answer = search(problem)
    layouts = sorted(map(_Judge(problem, answer).considered, answer.verdicts), key=_order)
    sizes = tuple(_micro_batches(problem, answer.best)) if answer.best else ()
    return Considerations(problem.budget, problem.host_budget, tuple(layouts), sizes)


def decided(planned: Planned) -> dict[str, Any]:
    """The value of each slot, even if there is no plan because memory is too small."""
    return {each.slot: each.value for each in planned.ledger.winners()}


def is_judged(facts: Facts | None, slot: str) -> bool:
    """Whether the search decides a slot."""
    return facts is not None and (slot in SHAPE_SLOTS or slot == "batch.micro")


def _draft(planned: Planned) -> Draft:
    values = decided(planned)
    return Draft({group: build_group(group, values) for group in GROUPS})


_ORDER: Final[tuple[State, ...]] = ("chosen", "fits", "device memory", "host memory", "refused")


def _order(each: ConsideredLayout) -> tuple[int, float, str]:
    speed = each.step_seconds if each.state == "fits" else float(each.required)
    return _ORDER.index(each.state), speed, each.name


class _Judge(Struct, frozen=True):
    problem: Problem
    answer: Answer

    def considered(self, verdict: Verdict) -> ConsideredLayout:
        """The outcome of one shape."""
        problem, shape = self.problem, verdict.shape
        best = self.answer.best
        if verdict.best is not None and best is not None:
            is_chosen = shape == best.shape
            why = chosen(self.answer) if is_chosen else _slower(verdict.best, best)
            state: State = "chosen" if is_chosen else "fits"
            return _with_sums(problem, shape, verdict.best.layout, state, why)
        if verdict.refusal is not None:
            return ConsideredLayout(str(shape), _slots(shape), "refused", verdict.refusal)
        state = "host memory" if verdict.host_required else "device memory"
        smallest = verdict.smallest or layout_of(problem, shape, 1, 1)
        return _with_sums(problem, shape, smallest, state, describe(verdict, problem))


def _slower(other: Candidate, best: Candidate) -> str:
    """Why a layout that fits was rejected: its speed, and what counts against it."""
    longer, held = other.cost / best.cost - 1, _held_against(other, best)
    if longer >= _TOLD:
        return ", and ".join((f"fits, {longer:.1%} slower", *held[:1]))
    speed = f"{-longer:.1%} faster" if longer <= -_TOLD else "equally fast"
    if other.shape.offloads and not best.shape.offloads:
        held.append("moves states to the host")
    return f"fits and is {speed}, but {(*held, 'is more complex')[0]}"


_TOLD: Final = 0.0005
"""The smallest difference in step time that is reported, as a share: it is shown as `0.1%`."""


def _held_against(other: Candidate, best: Candidate) -> list[str]:
    """Drawbacks of a layout that the chosen one does not have, and that speed must outweigh."""
    told = (
        (other.sums_narrow and not best.sums_narrow, "adds gradients up in bf16"),
        (other.spends_reserve and not best.spends_reserve, "leaves less than the reserve free"),
        (other.shape.engine == "fsdp" != best.shape.engine, "writes other checkpoints"),
    )
    return [words for holds, words in told if holds]


def _with_sums(
    problem: Problem, shape: Shape, layout: Layout, state: State, why: str
) -> ConsideredLayout:
    memory = account(problem.workload, layout, problem.vendor)
    time = step_time(problem.workload, layout, problem.machine)
    return _considered(str(shape), _slots(shape), state, why, memory, time)


def _considered(
    name: str, slots: Mapping[str, Any], state: State, why: str, memory: Account, time: TimeAccount
) -> ConsideredLayout:
    margin = {f"margin: {term}": value for term, value in memory.margin.items()}
    return ConsideredLayout(
        name,
        slots,
        state,
        why,
        memory.layout.batch.micro,
        memory.layout.batch.accumulation,
        memory.required_bytes,
        {**memory.terms, **margin},
        memory.host.peak_bytes,
        memory.host.terms,
        time.step_seconds,
        time.samples_per_second,
        time.tokens_per_second,
    )


def _slots(shape: Shape) -> dict[str, Any]:
    return {slot: shape.says(slot) for slot in SLOTS if slot in SHAPE_SLOTS}


# ── micro batches ────────────────────────────────────────────────────────────────────────────────


def _micro_batches(problem: Problem, best: Candidate) -> Iterator[ConsideredLayout]:
    """Micro batch sizes near the chosen one that divide a device's share of the global batch."""
    chosen = best.layout.batch.micro
    share = chosen * best.layout.batch.accumulation
    sizes = [size for size in range(1, isqrt(share) + 1) if share % size == 0]
    every = sorted({*sizes, *(share // size for size in sizes)})
    at = every.index(chosen)
    for size in every[max(0, at - _SIZES) : at + _SIZES + 1]:
        layout = layout_of(problem, best.shape, size, share // size)
        memory = account(problem.workload, layout, problem.vendor)
        time = step_time(problem.workload, layout, problem.machine)
        state, why = _verdict(size, best, memory, time, problem.budget)
        yield _considered(f"micro batch {size}", {"batch.micro": size}, state, why, memory, time)


def _verdict(
    size: int, best: Candidate, memory: Account, time: TimeAccount, budget: int
) -> tuple[State, str]:
    if size == best.layout.batch.micro:
        return "chosen", "the largest that fits"
    if memory.required_bytes > budget:
        needs = f"needs {format_bytes(memory.required_bytes)} of {format_bytes(budget)}"
        return "device memory", needs
    longer = time.step_seconds / best.time.step_seconds - 1
    return "fits", f"fits, {longer:.1%} slower" if longer >= _TOLD else "fits, but is no faster"
