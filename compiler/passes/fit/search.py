"""The search: every possible shape, the micro batches that fit it, the fastest of them."""

from dataclasses import dataclass, replace
from functools import lru_cache

from tunec.compiler.analyses.memory.account import Account, account, largest_micro_batch
from tunec.compiler.analyses.memory.workload import Layout
from tunec.compiler.analyses.time.account import TimeAccount, step_time
from tunec.compiler.passes.fit.problem import Problem, Shape, layout_of
from tunec.compiler.passes.fit.shapes import global_batch, impossible, shapes
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

    best: Candidate | None
    verdicts: tuple[Verdict, ...]

    @property
    def nearest(self) -> Verdict | None:
        """Among shapes that only lack device memory, the one that lacks least."""
        short = [v for v in self.verdicts if v.best is None and v.required and not v.refusal]
        return min(short, key=lambda verdict: verdict.required, default=None)


@lru_cache(maxsize=4096)
def search(problem: Problem) -> Answer:
    """Find the fastest layout that fits; equal speeds go to the simplest shape."""
    verdicts = tuple(_judge(problem, shape) for shape in shapes(problem))
    fitting = [verdict.best for verdict in verdicts if verdict.best is not None]
    return Answer(min(fitting, key=_preference, default=None), verdicts)


def _preference(candidate: Candidate) -> tuple[float, int, int, Shape]:
    """Speed to three digits, then the simplest: least machinery, the larger micro batch."""
    return (
        float(f"{candidate.cost:.3g}"),
        _complexity(candidate.shape),
        -candidate.layout.batch.micro,
        candidate.shape,
    )


def _complexity(shape: Shape) -> int:
    engines = {"none": 0, "ddp": 1, "deepspeed": 2}
    places = {"none": 0, "cpu": 1, "nvme": 2}
    moved = places[shape.offload_optimizer] + places[shape.offload_param]
    return (
        (engines[shape.engine] * 10 + shape.stage) * 100
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
    host = account(problem.workload, smallest).host.peak_bytes
    if problem.host_budget is not None and host > problem.host_budget:
        return Verdict(shape, None, host_required=host)
    micros = _micro_batches(problem, share, most)
    if not micros:
        return Verdict(shape, None, _batch_refusal(problem, share, most))
    candidates = [_candidate(problem, shape, micro, share // micro) for micro in micros]
    return _with_evaluation(problem, min(candidates, key=_preference))


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


def _micro_batches(problem: Problem, share: int, most: int) -> list[int]:
    """Micro batches that divide a device's share of the global batch and fit, or as pinned."""
    micro = problem.pinned.get("batch.micro")
    accumulation = problem.pinned.get("batch.accumulation")
    return [
        size
        for size in range(1, min(share, most) + 1)
        if share % size == 0
        and (micro is None or size == micro)
        and (accumulation is None or share // size == accumulation)
    ]


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
