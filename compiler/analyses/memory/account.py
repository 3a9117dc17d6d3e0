"""The memory account: where every byte of a run's peak goes, on the device and on its host."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from tunec.compiler.analyses.memory.calibration import TRACED, calibrated
from tunec.compiler.analyses.memory.loss import TILE_ROWS, is_tiled, judged_tokens
from tunec.compiler.analyses.memory.margin import (
    READING,
    apart,
    kind_of,
    running_ahead,
    slack,
    with_slack,
)
from tunec.compiler.analyses.memory.rank import of_rank, reached
from tunec.compiler.analyses.memory.sharding import as_ranks, sharding_of
from tunec.compiler.analyses.memory.terms.critic import in_turns, of_critic
from tunec.compiler.analyses.memory.terms.host import BESIDE, HostAccount, host_account
from tunec.compiler.analyses.memory.terms.passes import pass_of
from tunec.compiler.analyses.memory.terms.run import always_held, phases
from tunec.compiler.analyses.memory.terms.turns import is_away
from tunec.compiler.analyses.memory.timeline import At, Phase, Term, timeline
from tunec.compiler.analyses.memory.workload import Layout, Workload
from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace
from tunec.schemas.terms import Vendor


class Account(Struct, frozen=True):
    """The memory of one layout of one workload, on the device that needs the most."""

    workload: Workload
    layout: Layout
    lines: tuple[Phase, ...]
    peak: Phase
    peak_bytes: int
    """Bytes allocated at the peak, without the margin."""
    vendor: Vendor = "nvidia"
    """The vendor of the devices, whose drivers and libraries name the parts of the margin."""
    rank: int = 0
    """The rank of that device among those that share one set of shards."""

    @property
    def phases(self) -> dict[str, dict[str, int]]:
        """Bytes by phase of a training step and by name; terms of zero bytes are left out."""
        return {line.name: line.terms(samples(line, self.layout)) for line in self.lines}

    @property
    def peak_phase(self) -> str:
        """The name of the phase that needs the most memory."""
        return self.peak.name

    @property
    def terms(self) -> dict[str, int]:
        """The peak phase's terms, largest first."""
        terms = self.peak.terms(samples(self.peak, self.layout))
        return dict(sorted(terms.items(), key=lambda term: -term[1]))

    @property
    def margin(self) -> dict[str, int]:
        """Bytes that a device needs beyond the peak, by name."""
        slack_bytes = self._needed_bytes - self.peak_bytes
        unmoved = self.apart
        return {**unmoved, "allocator slack": slack_bytes}

    @property
    def required_bytes(self) -> int:
        """The peak with its margin, which is compared with a device's budget."""
        return self._needed_bytes + sum(self.apart.values())

    @property
    def apart(self) -> Mapping[str, int]:
        """Bytes that a device needs outside torch's allocator, or for libraries, by name."""
        return apart(self.layout.parallel.world, self.vendor, self.workload.margin)

    @property
    def _needed_bytes(self) -> int:
        """Bytes that the allocator reserves for the phase that needs the most."""
        return _needed_bytes(self.workload, self.layout, self.lines)

    @property
    def reading_bytes(self) -> int:
        """The upper limit of what nvidia-smi shows in 95 % of measured runs with room to spare."""
        world = self.layout.parallel.world
        kept = self.peak_bytes * READING[kind_of(self.workload, world)]
        ahead = running_ahead(self.workload, self.layout)
        return round(sum(self.apart.values()) + self.peak_bytes + max(kept, ahead))

    @property
    def calibration(self) -> str | None:
        """The name of the stored trace behind the phases; None if the phases are computed."""
        known = self.workload.calibration
        return known.name if known is not None and self.lines[0].name in TRACED else None

    @property
    def host(self) -> HostAccount:
        """The memory that one node's host needs."""
        return host_account(self.workload, self.layout)


@cached(4096)
def required_bytes(workload: Workload, layout: Layout) -> int:
    """The peak of a layout with its margin, for callers that need nothing else of the account."""
    return account(workload, layout).required_bytes


def samples(line: Phase, layout: Layout) -> int:
    """The number of samples that a phase holds at once."""
    return layout.batch.evaluation if line.evaluates else layout.batch.micro


def account(workload: Workload, layout: Layout, vendor: Vendor = "nvidia") -> Account:
    """Compute the memory that a layout needs.

    The samples of a micro batch are padded to the longest one, unless samples are packed.
    """
    short = layout.batch.micro * _sample_rows(workload) < TILE_ROWS
    courses = _courses(workload, layout, several=layout.batch.micro > 1, short=short)
    rank, lines = max(courses, key=lambda each: _needed_bytes(workload, layout, each.lines))
    sizes = [line.at(samples(line, layout)) for line in lines]
    most = max(sizes)
    return Account(workload, layout, lines, lines[sizes.index(most)], most, vendor, rank)


def _needed_bytes(workload: Workload, layout: Layout, lines: tuple[Phase, ...]) -> int:
    batch = layout.batch
    return with_slack(slack(workload, layout), lines, batch.micro, batch.evaluation)


class _Course(NamedTuple):
    """The phases of a run on one rank."""

    rank: int
    lines: tuple[Phase, ...]


def largest_micro_batch(workload: Workload, layout: Layout, budget_bytes: int) -> int:
    """The largest micro batch whose peak and margin fit a budget in bytes; 0 if no sample fits.

    The layout's own micro batch is ignored. Evaluation is ignored too, since it has its own batch
    size.
    """
    if least_bytes(workload, layout) > budget_bytes:
        return 0
    most = _largest(workload, layout, budget_bytes, short=False)
    if _sample_rows(workload) >= TILE_ROWS:
        return most
    return max(most, _largest(workload, layout, budget_bytes, short=True))


def _largest(workload: Workload, layout: Layout, budget_bytes: int, *, short: bool) -> int:
    """The largest micro batch, for a loss of whole tiles or, if `short`, of less than one tile.

    A tile takes the smaller of the two sizes, so a micro batch fits if it fits by either. If one
    sample, which needs no padding, does not fit, several samples do not fit either.
    """
    room = budget_bytes - _apart_bytes(workload, layout)
    one = min(_most(_bounds(workload, layout, several=False, short=short), room), 1)
    if not one:
        return 0
    return max(_most(_bounds(workload, layout, several=True, short=short), room), one)


@cached(4096)
def least_bytes(workload: Workload, layout: Layout) -> float:
    """Bytes that a device needs without any sample: the terms that always exist, with their margin.

    If the workload has a stored trace, only the trace's phases are known, and the result is 0.
    """
    if workload.calibration is not None:
        return 0.0
    held = _held(workload, layout)
    second = of_critic(workload, layout)
    if second is not None and not is_away(workload):
        held += _held(*second)
    return held * (1 + slack(workload, layout).still) + _apart_bytes(workload, layout)


def _held(workload: Workload, layout: Layout) -> int:
    """Bytes of a model that a device always has."""
    workload = of_rank(reached(workload, layout), layout.parallel.tensor)
    plan = sharding_of(workload, layout, accumulates=layout.batch.accumulation > 1)
    return sum(term.bytes for term in always_held(workload, plan) if term.freed == At.END)


def _apart_bytes(workload: Workload, layout: Layout) -> int:
    return sum(apart(layout.parallel.world, margin=workload.margin).values())


@cached(4096)
def _courses(
    workload: Workload, layout: Layout, *, several: bool, short: bool = False
) -> tuple[_Course, ...]:
    """The run on each of the ranks of which one needs the most."""
    compared = workload.preference is not None
    padded = (several or compared) and not workload.data.packing
    of_host = tuple(_of_host(workload, layout)) if workload.shares_host_memory else ()
    traced = calibrated(workload, layout, padded=padded) if workload.calibration else ()
    rank = of_rank(reached(workload, layout), layout.parallel.tensor, several=several)
    plan = sharding_of(rank, layout, accumulates=layout.batch.accumulation > 1)
    run = pass_of(rank, layout, padded=padded, short=short, alone=not several)
    share = _share(workload, layout)
    second = of_critic(workload, layout)
    turn = _highest_course(*second, several=several, short=short) if second else ()
    return tuple(
        _Course(
            each.partition.rank,
            _lines(_both(workload, phases(rank, each, run, share), turn), traced, of_host),
        )
        for each in (as_ranks(plan)[:1] if traced else as_ranks(plan))
    )


def _highest_course(
    workload: Workload, layout: Layout, *, several: bool, short: bool
) -> tuple[Phase, ...]:
    """The run of a critic on the rank that needs the most."""
    courses = _courses(workload, layout, several=several, short=short)
    return max(courses, key=lambda each: _needed_bytes(workload, layout, each.lines)).lines


def _both(
    workload: Workload, lines: tuple[Phase, ...], turn: tuple[Phase, ...]
) -> tuple[Phase, ...]:
    """The phases of a step in which the critic has a turn."""
    if not turn:
        return lines
    return timeline(in_turns(lines[0].course, turn[0].course, waits=is_away(workload)))


def _lines(
    lines: tuple[Phase, ...], traced: tuple[Term, ...], of_host: tuple[Term, ...]
) -> tuple[Phase, ...]:
    if of_host:
        lines = timeline((*lines[0].course, *of_host))
    if not traced:
        return lines
    return (
        *timeline((*traced, *of_host)),
        *(line for line in lines if line.evaluates or line.name in AHEAD),
    )


def _of_host(workload: Workload, layout: Layout) -> Iterator[Term]:
    """The host memory of a node per device, for devices that share one memory with their host.

    Each further sample adds as much as the second sample adds to the first.
    """
    ranks = -(-layout.parallel.world // layout.nodes)
    one, two = (
        host_account(workload, replace(layout, batch=replace(layout.batch, micro=micro))).course
        for micro in (1, 2)
    )
    for first, second in zip(one, two, strict=True):
        each = second.bytes - first.bytes
        for size, by_sample in ((first.bytes - each, False), (each, True)):
            yield Term(
                f"host: {first.name}",
                -(-size // ranks),
                BESIDE[first.born],
                BESIDE[first.freed],
                by_sample,
            )


AHEAD: Final = (At.ENCODING.name, At.LOADING.name)
"""Moments before the first step. Traces begin at the first step, so no trace contains them."""


def _sample_rows(workload: Workload) -> int:
    """Tokens of one sample for a loss computed in tiles; for other losses, the rows of one tile."""
    if workload.loss != "chunked" or not is_tiled(workload.version("trl")):
        return TILE_ROWS
    asked = workload.preference
    return judged_tokens(workload) * (asked.sequences if asked is not None else 1)


def _share(workload: Workload, layout: Layout) -> int:
    """Samples of one device in an optimizer step, if each takes memory of its own; otherwise 1."""
    written = workload.generation is not None and workload.generation.by_sample
    goes = written or workload.data.images > 0
    return layout.batch.micro * layout.batch.accumulation if goes else 1


class _Bounds(NamedTuple):
    """The memory that the training phases need on a device, including the allocator's slack."""

    fixed: float
    """Bytes of the phase that needs the most without any sample."""
    lines: tuple[tuple[float, float], ...]
    """Bytes without any sample, and bytes per sample, of each phase that can be the highest one."""


@cached(4096)
def _bounds(workload: Workload, layout: Layout, *, several: bool, short: bool) -> _Bounds:
    shares = slack(workload, layout)
    still, moving = 1 + shares.still, 1 + shares.moving
    lines = [
        (line.fixed_bytes * still, line.sample_bytes * moving)
        for course in _courses(workload, layout, several=several, short=short)
        for line in course.lines
        if not line.evaluates
    ]
    return _Bounds(max(fixed for fixed, _ in lines), tuple(_highest(lines)))


def _highest(lines: Iterable[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """The lines that are above all others for some number of samples, the steepest line first."""
    highest = -1.0
    for fixed, each in sorted(lines, key=lambda line: (-line[1], -line[0])):
        if each and fixed > highest:
            highest = fixed
            yield fixed, each


def _most(bounds: _Bounds, room: float) -> int:
    """The number of samples with which every training phase fits in `room` bytes."""
    if bounds.fixed > room:
        return 0
    return min((int((room - fixed) // each) for fixed, each in bounds.lines), default=1)
