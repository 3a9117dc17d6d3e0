"""The search: every possible shape, the micro batches that fit it, the fastest of them."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from math import isqrt

from tunec.compiler.analyses.memory.account import Account, account, largest_micro_batch
from tunec.compiler.analyses.memory.workload import Layout
from tunec.compiler.analyses.time.account import TimeAccount, step_time
from tunec.compiler.passes.fit.problem import Problem, Shape, layout_of
from tunec.compiler.passes.fit.shapes import global_batch, impossible, possible, shapes
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
    """Find the fastest layout that fits; equal speeds go to the simplest shape.

    Shapes are tried in the order of what each could reach at best, with memory without end, and
    the search ends where that is no better than what was found: nothing behind it can win.
    """
    best: Candidate | None = None
    for bound, shape in sorted(_bounds(problem)):
        if best is not None and bound > preference(best):
            break
        found = _judge(problem, shape).best
        if found is not None and (best is None or preference(found) < preference(best)):
            best = found
    return Answer(problem, best)


def fits(problem: Problem) -> bool:
    """Whether the search finds anything: asked of the layouts that need least memory first."""
    return any(_judge(problem, shape).best is not None for shape in reversed(possible(problem)))


@lru_cache(maxsize=64)
def verdicts(problem: Problem) -> tuple[Verdict, ...]:
    """What becomes of every shape of a problem: its fastest layout, or why it has none."""
    return tuple(_judge(problem, shape) for shape in shapes(problem))


def _bounds(problem: Problem) -> Iterator[tuple[_Preference, Shape]]:
    """Each possible shape, with the preference that none of its candidates can be better than.

    That of its largest micro batch (`_fastest`), were there memory for it.
    """
    for shape in possible(problem):
        share, rest = divmod(global_batch(problem, shape.width), shape.width)
        micro = None if rest else _largest(problem, share, share)
        if micro is not None:
            yield preference(_candidate(problem, shape, micro, share // micro)), shape


def preference(candidate: Candidate) -> _Preference:
    """Speed to three digits, then the simplest: least machinery, the larger micro batch."""
    return (
        float(f"{candidate.cost:.3g}"),
        _complexity(candidate.shape),
        -candidate.layout.batch.micro,
        candidate.shape,
    )


_ENGINES = {"none": 0, "ddp": 1, "deepspeed": 2}
_PLACES = {"none": 0, "cpu": 1, "nvme": 2}


def _complexity(shape: Shape) -> int:
    moved = _PLACES[shape.offload_optimizer] + _PLACES[shape.offload_param]
    return (
        (_ENGINES[shape.engine] * 10 + shape.stage) * 100
        + moved * 10
        + (shape.checkpointing != "none")
    )


def _judge(problem: Problem, shape: Shape) -> Verdict:
    refusal = impossible(problem, shape)
    if refusal is not None:
        return Verdict(shape, None, refusal)
    share, rest = divmod(global_batch(problem, shape.width), shape.width)
    if rest:
        return Verdict(shape, None, f"a global batch of {problem.global_batch} does not divide")
    smallest = layout_of(problem, shape, 1, share)
    most = largest_micro_batch(problem.workload, smallest, problem.budget)
    if most == 0:
        return Verdict(shape, None, required=account(problem.workload, smallest).required_bytes)
    host = _host_bytes(problem, smallest)
    if problem.host_budget is not None and host > problem.host_budget:
        return Verdict(shape, None, host_required=host)
    micro = _largest(problem, share, most)
    if micro is None:
        return Verdict(shape, None, _batch_refusal(problem, share, most))
    return _with_evaluation(problem, _candidate(problem, shape, micro, share // micro))


def _host_bytes(problem: Problem, layout: Layout) -> int:
    """Bytes that a layout needs of a node's memory; 0 where it does not matter."""
    if problem.host_budget is None:
        return 0
    return account(problem.workload, layout).host.peak_bytes


def _with_evaluation(problem: Problem, candidate: Candidate) -> Verdict:
    """Halve the evaluation batch until evaluation fits as training does."""
    shape, layout = candidate.shape, candidate.layout
    required = account(problem.workload, layout).required_bytes
    pinned = "batch.evaluation" in problem.pinned
    while required > problem.budget and layout.batch.evaluation > 1 and not pinned:
        smaller = replace(layout.batch, evaluation=layout.batch.evaluation // 2)
        layout = replace(layout, batch=smaller)
        required = account(problem.workload, layout).required_bytes
    if required > problem.budget:
        return Verdict(shape, None, required=required)
    return Verdict(shape, replace(candidate, layout=layout))


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
