"""The search: every possible shape, the micro batches that fit it, and the simplest fast one."""

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from heapq import heappop, heappush
from math import inf
from operator import attrgetter
from typing import Final

from msgspec import Struct

from tunec.compiler.analyses.memory.account import required_bytes
from tunec.compiler.analyses.memory.sharding import PARAMETERS
from tunec.compiler.analyses.memory.workload import Layout
from tunec.compiler.analyses.time.account import TimeAccount, step_time
from tunec.compiler.passes.fit.problem import Problem, Shape
from tunec.compiler.passes.fit.rungs import Fitting, Ladder, Rung, rungs
from tunec.compiler.passes.fit.shapes import impossible, shapes
from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace
from tunec.schemas.terms import STEPS_IN_BACKWARD, Engine, Offload
from tunec.schemas.units import format_bytes


class Candidate(Struct, frozen=True):
    """A layout that fits, with its step time."""

    shape: Shape
    layout: Layout
    time: TimeAccount
    spends_reserve: bool = False
    """Whether it uses memory of the reserve."""
    sums_narrow: bool = False
    """Whether it accumulates gradients in bf16 that could be accumulated in fp32."""

    @property
    def cost(self) -> float:
        """Seconds for one sample."""
        return 1 / self.time.samples_per_second


class Verdict(Struct, frozen=True):
    """The outcome of a shape: its best candidate, or the reason why there is none."""

    shape: Shape
    best: Candidate | None
    refusal: str | None = None
    """The rule by which it cannot run."""
    required: int = 0
    """Bytes that a device needs with its smallest batch, if that is too much."""
    host_required: int = 0
    """Bytes that a node needs, if that is too much."""
    smallest: Layout | None = None
    """The layout that needs this much."""


class Answer(Struct, frozen=True):
    """The search's result; `best` is None if nothing fits."""

    problem: Problem
    best: Candidate | None

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The outcome of every shape, including those that the search could skip."""
        return verdicts(self.problem)

    @property
    def nearest(self) -> Verdict | None:
        """Of the shapes that only lack device memory, the one that lacks least."""
        return shortages(self.problem)[0]

    @property
    def nearest_on_host(self) -> Verdict | None:
        """Of the shapes that fit the device, the one that lacks least host memory."""
        return shortages(self.problem)[1]


_Bound = tuple[float, Shape]


@cached(1024)
def search(problem: Problem) -> Answer:
    """Find the simplest of the layouts that fit and are as fast as the fastest (`preferred`).

    Shapes are tried in the order of what each could reach with unlimited memory. The search ends
    when the next one could not be as fast as the fastest that was found.
    """
    found: list[Candidate] = []
    fastest = inf
    for (bound, _), hope, rung in _hopes(problem):
        if bound > (1 + TIE) * fastest:
            break
        best = _best(problem, rung, hope)
        if best is not None:
            found.append(best)
            fastest = min(fastest, priced(best))
    return Answer(problem, preferred(found))


@cached(64)
def verdicts(problem: Problem) -> tuple[Verdict, ...]:
    """The outcome of every shape of a problem: its fastest layout, or why it has none."""
    found = {rung.shape: rung for rung in _every(problem)}
    return tuple(
        _judge(problem, found[shape])
        if shape in found
        else Verdict(shape, None, impossible(problem, shape))
        for shape in shapes(problem)
    )


@cached(64)
def shortages(problem: Problem) -> tuple[Verdict | None, Verdict | None]:
    """The shapes that lack least of a device's memory, and of the host's; None: no shape does.

    A shape needs at least what it always holds. Shapes for which that already exceeds another's
    total are skipped.
    """
    device: list[tuple[int, int, Verdict]] = []
    host: list[tuple[int, int, Verdict]] = []
    for rung in sorted(_every(problem), key=lambda each: each.least_bytes):
        if device and rung.least_bytes > max(problem.budget, min(device)[0] + 1):
            break
        found = _judge(problem, rung)
        if found.required:
            device.append((found.required, rung.place, found))
        elif found.host_required:
            host.append((found.host_required, rung.place, found))
    return min(device)[2] if device else None, min(host)[2] if host else None


def _every(problem: Problem) -> Iterator[Rung]:
    """Each possible shape, the simplest first."""
    return (rung for ladder in rungs(problem) for rung in ladder)


def _hopes(problem: Problem) -> Iterator[tuple[_Bound, Candidate, Rung]]:
    """Each possible shape with its best candidate given unlimited memory, fastest first.

    Recomputing layers never makes a step faster, so a shape that recomputes follows the one that
    does not, and its bound is computed only then.
    """
    waiting: list[tuple[_Bound, Candidate, Ladder]] = []
    for ladder in rungs(problem):
        if ladder[0].can_hold(problem.budget):
            _hope(problem, ladder, waiting)
    while waiting:
        bound, hope, (rung, *dearer) = heappop(waiting)
        yield bound, hope, rung
        if dearer:
            _hope(problem, tuple(dearer), waiting)


def _hope(
    problem: Problem, ladder: Ladder, waiting: list[tuple[_Bound, Candidate, Ladder]]
) -> None:
    """Queue a ladder by what its first shape could reach, if it has any layout."""
    layout = ladder[0].roomiest
    if layout is not None:
        hope = _candidate(problem, ladder[0], layout)
        heappush(waiting, ((priced(hope), hope.shape), hope, ladder))


def preferred(found: Collection[Candidate]) -> Candidate | None:
    """The simplest of those that are as fast as the fastest, for all that the account can tell.

    `found` has the best candidate of each shape. If the fastest moves nothing to the host, nor does
    what is preferred. More memory only adds candidates, so that no plan gets slower by more than
    `TIE` and what it no longer concedes.
    """
    fastest = min(found, key=priced, default=None)
    if fastest is None:
        return None
    near, offloads = (1 + TIE) * fastest.cost, fastest.shape.offloads
    equal = (each for each in found if each.cost <= near and each.shape.offloads == offloads)
    return min(equal, key=simplicity)


def priced(candidate: Candidate) -> float:
    """Seconds for each sample, and what a layout has to be faster by if it uses the host's memory.

    Nine digits: what no platform's arithmetic tells apart.
    """
    return float(f"{candidate.cost * (1 + OFFLOADED * candidate.shape.offloads):.9g}")


def yielding(candidate: Candidate) -> float:
    """Seconds for each sample, and what a layout has to be faster by for what it gives up."""
    given_up = candidate.spends_reserve + candidate.sums_narrow
    return float(f"{candidate.cost * (1 + CONCESSION * given_up):.9g}")


def simplicity(candidate: Candidate) -> tuple[object, ...]:
    """The order in which layouts that are equally fast are taken.

    First those that give up nothing and move less to the host; then by engine, FSDP after ZeRO,
    since its checkpoints differ (decision 10); then those whose parameters are whole, those that
    recompute nothing, and the lower stage.
    """
    shape = candidate.shape
    return (
        candidate.spends_reserve + candidate.sums_narrow,
        _PLACES[shape.offload_optimizer] + _PLACES[shape.offload_param] + shape.fsdp[2],
        _ENGINES.index(shape.engine),
        shape.stage == PARAMETERS or shape.fsdp[1] in ("full", "hybrid"),
        shape.checkpointing != "none",
        shape.stage,
        priced(candidate),
        shape,
    )


TIE: Final = 0.1
"""Layouts are equally fast if their times differ by less than this share: half of the runs that
judge the account are off by about as much (`accuracy.HALF`)."""

CONCESSION: Final = 0.1
"""How much faster a layout must be to use the reserve, or to accumulate gradients in bf16, as a
share. A judgement: halving a batch costs less, recomputation and offload cost more."""

OFFLOADED: Final = 1 / 3
"""How much faster a layout must be to hold parts of its state on the host, as a share: as much as
recomputing all layers costs. Where a device has room, offload then wins by nothing that its engine
brings besides, such as weights in 16 bits without autocast. A judgement."""

_ENGINES: Final[tuple[Engine, ...]] = ("none", "ddp", "deepspeed", "fsdp")
_PLACES: Final[Mapping[Offload, int]] = {"none": 0, "cpu": 1, "nvme": 2}


def _judge(problem: Problem, rung: Rung) -> Verdict:
    """The outcome of a possible shape."""
    best = _best(problem, rung)
    return _lack(problem, rung.narrow or rung) if best is None else Verdict(rung.shape, best)


def _best(problem: Problem, rung: Rung, hope: Candidate | None = None) -> Candidate | None:
    """The preferred candidate of a possible shape; None if it has none.

    `hope`: its candidate given unlimited memory.
    """
    found = _roomy(problem, rung, hope)
    if rung.narrow is None or (found is not None and found.layout is rung.roomiest):
        return found
    other = _roomy(problem, rung.narrow)
    narrow = other and replace(other, sums_narrow=other.layout.batch.accumulation > 1)
    return min(filter(None, (found, narrow)), key=yielding, default=None)


def _roomy(problem: Problem, rung: Rung, hope: Candidate | None = None) -> Candidate | None:
    """The preferred candidate of one rung: it leaves the reserve free, or is worth using it."""
    within = rung.fitting(problem.budget - problem.reserve, problem.host_budget)
    kept = within and _timed(problem, rung, within, hope)
    if not problem.reserve or (within and within.training is rung.roomiest):
        return kept
    found = rung.fitting(problem.budget, problem.host_budget)
    spent = found and replace(_timed(problem, rung, found, hope), spends_reserve=True)
    return min(filter(None, (kept, spent)), key=yielding, default=None)


def _timed(
    problem: Problem, rung: Rung, found: Fitting, hope: Candidate | None = None
) -> Candidate:
    """A candidate for what fits; `hope` has its time already if the layout is the same."""
    if hope is None or hope.layout is not found.training:
        hope = _candidate(problem, rung, found.training)
    return hope if found.whole is found.training else replace(hope, layout=found.whole)


def _lack(problem: Problem, rung: Rung) -> Verdict:
    """The reason why a possible shape has no candidate."""
    shape = rung.shape
    if not rung.divides:
        return Verdict(shape, None, f"a global batch of {problem.global_batch} does not divide")
    if rung.least is None:
        return Verdict(shape, None, _batch_refusal(problem, rung.share))
    micro = rung.largest(rung.most(problem.budget))
    if micro is not None and rung.lacks_host(problem.host_budget):
        return Verdict(shape, None, host_required=rung.host_bytes, smallest=rung.smallest)
    layout = _smallest(problem, rung) if micro is None else rung.layout(micro)
    layout = rung.evaluating(layout, problem.budget)
    required = required_bytes(problem.workload, layout)
    return Verdict(shape, None, required=required, smallest=layout)


def _smallest(problem: Problem, rung: Rung) -> Layout:
    """The layout that needs least: few samples at once, or all (`Rung.is_lightest_at_once`)."""
    most = rung.roomiest
    if most is None or not rung.is_lightest_at_once:
        return rung.smallest
    return min(rung.smallest, most, key=partial(required_bytes, problem.workload))


def _batch_refusal(problem: Problem, share: int) -> str:
    if problem.workload.optimizer.name in STEPS_IN_BACKWARD:
        return "LOMO updates in each backward pass, so micro batches cannot be accumulated"
    pins = (f"{slot} {value}" for slot, value in problem.pins if slot.startswith("batch."))
    return f"{share} samples per device cannot be divided as pinned: {', '.join(pins)}"


def _candidate(problem: Problem, rung: Rung, layout: Layout) -> Candidate:
    return Candidate(rung.shape, layout, step_time(problem.workload, layout, problem.machine))


def describe(verdict: Verdict, problem: Problem) -> str:
    """The outcome of a shape in a few words."""
    if verdict.refusal is not None:
        return verdict.refusal
    if verdict.host_required:
        host = format_bytes(problem.host_budget or 0)
        return f"needs {format_bytes(verdict.host_required)} of {host} host memory"
    if verdict.best is None:
        return f"needs {format_bytes(verdict.required)} of {format_bytes(problem.budget)}"
    leaves = " with less than the reserve left" if verdict.best.spends_reserve else ""
    return f"fits{leaves}, {verdict.best.time.step_seconds:.3g} s a step"


def chosen(answer: Answer) -> str:
    """A phrase for the chosen layout, without the memory that it has to fit."""
    fitting = [verdict.best for verdict in answer.verdicts if verdict.best is not None]
    if answer.best is None:
        return "the layout that needs the least memory, although none fits"
    if len(fitting) == 1:
        return "the only layout that fits"
    near = [each for each in fitting if not each.shape.offloads]
    if answer.best not in near or not min(fitting, key=attrgetter("cost")).shape.offloads:
        return _of(answer.best, fitting, f"{len(fitting)} layouts that fit")
    if len(near) == 1:
        return "the only layout that moves nothing to the host and fits"
    return _of(answer.best, near, f"{len(near)} layouts that move nothing to the host and fit")


def _of(best: Candidate, found: Collection[Candidate], named: str) -> str:
    if best == min(found, key=priced):
        return f"the fastest of {named}"
    return f"the simplest within {TIE:.0%} of the fastest of {named}"
