"""The search: every possible shape, the micro batches that fit it, the fastest of them."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from heapq import heapify, heappop, heappush
from math import isqrt
from typing import Final

from tunec.compiler.analyses.memory.account import (
    Account,
    account,
    largest_micro_batch,
    least_bytes,
)
from tunec.compiler.analyses.memory.workload import Layout
from tunec.compiler.analyses.time.account import TimeAccount, step_time
from tunec.compiler.passes.fit.problem import Problem, Shape, layout_of
from tunec.compiler.passes.fit.shapes import global_batch, impossible, ladders, possible, shapes
from tunec.schemas.frozen import dataclass
from tunec.schemas.units import format_bytes


@dataclass(frozen=True, slots=True)
class Candidate:
    """A layout that fits, with its step time."""

    shape: Shape
    layout: Layout
    time: TimeAccount

    @property
    def cost(self) -> float:
        """Seconds for one sample."""
        return 1 / self.time.samples_per_second


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a shape: its fastest candidate, or why there is none."""

    shape: Shape
    best: Candidate | None
    refusal: str | None = None
    """Why it cannot run, by a rule."""
    required: int = 0
    """Bytes it needs on a device with micro batch 1, where that is too much."""
    host_required: int = 0
    """Bytes it needs on a node, where that is too much."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The search's result; `best` is None where nothing fits."""

    problem: Problem
    best: Candidate | None

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """What became of every shape, those too that the search could pass over."""
        return verdicts(self.problem)

    @property
    def nearest(self) -> Verdict | None:
        """Among shapes that only lack device memory, the one that lacks least."""
        short = [v for v in self.verdicts if v.best is None and v.required and not v.refusal]
        return min(short, key=lambda verdict: verdict.required, default=None)


_Preference = tuple[float, int, int, Shape]


@lru_cache(maxsize=1024)
def search(problem: Problem) -> Answer:
    """Find the fastest layout that fits; of those all but equal the simplest (`preference`).

    Shapes are tried in the order of what each could reach at best, with memory without end, and
    the search ends where that is no better than what was found: nothing behind it can win.
    """
    best: Candidate | None = None
    for bound, shape in _hopes(problem):
        if best is not None and bound > preference(best):
            break
        found = _best(problem, shape)
        if found is not None and (best is None or preference(found) < preference(best)):
            best = found
    return Answer(problem, best)


@lru_cache(maxsize=1024)
def fits(problem: Problem) -> bool:
    """Whether the search finds anything: asked of the layouts that need least memory first."""
    shapes = (shape for shape in reversed(possible(problem)) if _can_hold(problem, shape))
    return any(_best(problem, shape) is not None for shape in shapes)


@lru_cache(maxsize=64)
def verdicts(problem: Problem) -> tuple[Verdict, ...]:
    """What becomes of every shape of a problem: its fastest layout, or why it has none."""
    return tuple(_judge(problem, shape) for shape in shapes(problem))


def _hopes(problem: Problem) -> Iterator[tuple[_Preference, Shape]]:
    """Each possible shape with the preference that none of its candidates can beat, best first.

    Recomputing layers never makes a step faster: the shape that does comes after the one that does
    not, and its own bound is not worked out before.
    """
    waiting = [
        (bound, ladder)
        for ladder in ladders(problem)
        if _can_hold(problem, ladder[0]) and (bound := _bound(problem, ladder[0])) is not None
    ]
    heapify(waiting)
    while waiting:
        bound, (shape, *dearer) = heappop(waiting)
        yield bound, shape
        if dearer and (next_bound := _bound(problem, dearer[0])) is not None:
            heappush(waiting, (next_bound, tuple(dearer)))


def _can_hold(problem: Problem, shape: Shape) -> bool:
    """Whether a device has room for what a shape always holds, whatever it recomputes.

    All that the search finds out of a shape without room is that; and it is soon told, since it is
    the same for every machine. What FSDP holds rests on its batch too.
    """
    if shape.engine == "fsdp":
        return True
    share = global_batch(problem, shape.width) // shape.width
    layout = layout_of(problem, shape, 1, share)
    return least_bytes(problem.workload, layout) <= problem.budget


def _bound(problem: Problem, shape: Shape) -> _Preference | None:
    """The preference of a shape's largest micro batch (`_largest`), were there memory for it."""
    share, rest = divmod(global_batch(problem, shape.width), shape.width)
    micro = None if rest else _largest(problem, share, share)
    if micro is None:
        return None
    return preference(_candidate(problem, shape, micro, share // micro))


def preference(candidate: Candidate) -> _Preference:
    """Speed, of which each piece of machinery has to be worth a thousandth; then the simplest.

    So layouts that are all but equal go to the simplest, whatever else changes in the spec. Speed
    rounded to a grid would let them change places wherever a line of the grid falls between them.
    And to take the simplest of those within some share of the fastest would break a promise: more
    memory could bring a faster layout in, with it a simpler one that is slower than what was found
    before. Here it cannot make the best preference worse, and so no plan slower by more than its
    machinery counts, a hundredth at most.
    """
    pieces = _machinery(candidate.shape)
    priced = candidate.cost * (1 + PIECE * pieces)
    # Nine digits: what no platform's arithmetic tells apart.
    return float(f"{priced:.9g}"), pieces, -candidate.layout.batch.micro, candidate.shape


PIECE: Final = 0.001
"""The share by which a step has to be faster for one more piece of machinery. A judgement."""

_ENGINES: Final = {"none": 0, "ddp": 1, "fsdp": 2, "deepspeed": 2}
_PLACES: Final = {"none": 0, "cpu": 1, "nvme": 2}


def _machinery(shape: Shape) -> int:
    """What there is to run beyond one process: engine, stage, what is moved, and recomputation."""
    moved = _PLACES[shape.offload_optimizer] + _PLACES[shape.offload_param] + shape.fsdp[2]
    return _ENGINES[shape.engine] + shape.stage + moved + (shape.checkpointing != "none")


def _judge(problem: Problem, shape: Shape) -> Verdict:
    """What becomes of a shape, with the reason where that is nothing."""
    refusal = impossible(problem, shape)
    if refusal is not None:
        return Verdict(shape, None, refusal)
    best = _best(problem, shape)
    return _lack(problem, shape) if best is None else Verdict(shape, best)


def _best(problem: Problem, shape: Shape) -> Candidate | None:
    """The fastest candidate of a possible shape; None where it has none."""
    share, rest = divmod(global_batch(problem, shape.width), shape.width)
    if rest:
        return None
    smallest = layout_of(problem, shape, 1, share)
    most = _most(problem, shape, share)
    if most == 0 or _host_bytes(problem, smallest) > (problem.host_budget or 0):
        return None
    micro = _largest(problem, share, most)
    if micro is None:
        return None
    return _evaluating(problem, _candidate(problem, shape, micro, share // micro))


def _most(problem: Problem, shape: Shape, share: int) -> int:
    """The largest micro batch that fits; under FSDP also all of a device's share at once.

    Then no gradients of earlier micro batches wait whole, as they do in any accumulation.
    """
    smallest = layout_of(problem, shape, 1, share)
    most = largest_micro_batch(problem.workload, smallest, problem.budget)
    if shape.engine != "fsdp" or most >= share:
        return most
    whole = layout_of(problem, shape, share, 1)
    fitting = largest_micro_batch(problem.workload, whole, problem.budget)
    return share if fitting >= share else most


def _lack(problem: Problem, shape: Shape) -> Verdict:
    """Why a possible shape has no candidate."""
    share, rest = divmod(global_batch(problem, shape.width), shape.width)
    if rest:
        return Verdict(shape, None, f"a global batch of {problem.global_batch} does not divide")
    smallest = layout_of(problem, shape, 1, share)
    most = _most(problem, shape, share)
    if most == 0:
        return Verdict(shape, None, required=account(problem.workload, smallest).required_bytes)
    host = _host_bytes(problem, smallest)
    if host > (problem.host_budget or 0):
        return Verdict(shape, None, host_required=host)
    micro = _largest(problem, share, most)
    if micro is None:
        return Verdict(shape, None, _batch_refusal(problem, share, most))
    layout = _smallest_evaluation(problem, layout_of(problem, shape, micro, share // micro))
    return Verdict(shape, None, required=account(problem.workload, layout).required_bytes)


def _host_bytes(problem: Problem, layout: Layout) -> int:
    """Bytes that a layout needs of a node's memory; 0 where it does not matter."""
    if problem.host_budget is None:
        return 0
    return account(problem.workload, layout).host.peak_bytes


def _evaluating(problem: Problem, candidate: Candidate) -> Candidate | None:
    """The candidate with its evaluation batch halved until evaluation fits as training does."""
    layout = _smallest_evaluation(problem, candidate.layout)
    if account(problem.workload, layout).required_bytes > problem.budget:
        return None
    return candidate if layout is candidate.layout else replace(candidate, layout=layout)


def _smallest_evaluation(problem: Problem, layout: Layout) -> Layout:
    """The layout with the first evaluation batch that fits, or with the smallest."""
    if "batch.evaluation" in problem.pinned:
        return layout
    while layout.batch.evaluation > 1:
        if account(problem.workload, layout).required_bytes <= problem.budget:
            break
        smaller = replace(layout.batch, evaluation=layout.batch.evaluation // 2)
        layout = replace(layout, batch=smaller)
    return layout


def _largest(problem: Problem, share: int, most: int) -> int | None:
    """The largest micro batch that divides a device's share of the global batch, or the pinned one.

    `most`: the largest that fits. No smaller one can be faster, so that only this one is timed.
    With the share S fixed, m samples at a time take S x hypot(T + D/m, L/m) of computing (T, D, L:
    seconds a sample, of expanding weights, of launches), which falls as m grows; so does what is
    moved in each of the S/m micro batches. Computing that shrinks hides less, but of each of two
    exchanges at most half as much (`communication`): their sum never grows.
    """
    micro = problem.pinned.get("batch.micro")
    accumulation = problem.pinned.get("batch.accumulation")
    sizes = (
        size
        for size in _divisors(share)
        if size <= most
        and (micro is None or size == micro)
        and (accumulation is None or share // size == accumulation)
    )
    return next(sizes, None)


@lru_cache(maxsize=1024)
def _divisors(number: int) -> tuple[int, ...]:
    """All divisors, largest first."""
    low = [each for each in range(1, isqrt(number) + 1) if number % each == 0]
    return tuple(sorted({*low, *(number // each for each in low)}, reverse=True))


def _batch_refusal(problem: Problem, share: int, most: int) -> str:
    pins = (f"{slot} {value}" for slot, value in problem.pins if slot.startswith("batch."))
    return f"{share} samples a device, {most} at once at most: that is not {', '.join(pins)}"


def _candidate(problem: Problem, shape: Shape, micro: int, accumulation: int) -> Candidate:
    layout = layout_of(problem, shape, micro, accumulation)
    return Candidate(shape, layout, step_time(problem.workload, layout, problem.machine))


def describe(verdict: Verdict, problem: Problem) -> str:
    """Say in a few words what became of a shape."""
    if verdict.refusal is not None:
        return verdict.refusal
    if verdict.host_required:
        host = format_bytes(problem.host_budget or 0)
        return f"needs {format_bytes(verdict.host_required)} of {host} host memory"
    if verdict.best is None:
        return f"needs {format_bytes(verdict.required)} of {format_bytes(problem.budget)}"
    return f"fits, {verdict.best.time.step_seconds:.3g} s a step"


def account_of(problem: Problem, candidate: Candidate) -> Account:
    """The memory account of a candidate."""
    return account(problem.workload, candidate.layout)
