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
from tunec.compiler.analyses.memory.sharding import sharding_of
from tunec.compiler.analyses.memory.terms.host import BESIDE, HostAccount, host_account
from tunec.compiler.analyses.memory.terms.passes import pass_of
from tunec.compiler.analyses.memory.terms.run import always_held, phases
from tunec.compiler.analyses.memory.timeline import At, Phase, Term, timeline
from tunec.compiler.analyses.memory.workload import Layout, Workload
from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace
from tunec.schemas.terms import Vendor


class Account(Struct, frozen=True):
    """The memory of one layout of one workload, on the device that needs most."""

    workload: Workload
    layout: Layout
    lines: tuple[Phase, ...]
    peak: Phase
    peak_bytes: int
    """Bytes allocated at the peak, without margin."""
    vendor: Vendor = "nvidia"
    """Whose drivers and libraries the devices run: what the margin is called by."""

    @property
    def phases(self) -> dict[str, dict[str, int]]:
        """Bytes by phase of a training step and by name; terms of zero bytes are left out."""
        return {line.name: line.terms(samples(line, self.layout)) for line in self.lines}

    @property
    def peak_phase(self) -> str:
        """The phase that needs most."""
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
        """Peak and margin: what a budget is compared with."""
        return self._needed_bytes + sum(self.apart.values())

    @property
    def apart(self) -> Mapping[str, int]:
        """Bytes of a device beside torch's allocator, and what libraries hold in it, by name."""
        return apart(self.layout.parallel.world, self.vendor, self.workload.margin)

    @property
    def _needed_bytes(self) -> int:
        """Bytes that the allocator takes for the phase that needs most."""
        batch = self.layout.batch
        return with_slack(
            slack(self.workload, self.layout), self.lines, batch.micro, batch.evaluation
        )

    @property
    def reading_bytes(self) -> int:
        """What nvidia-smi shows at most in 95 % of measured runs where the device has room."""
        world = self.layout.parallel.world
        kept = self.peak_bytes * READING[kind_of(self.workload, world)]
        ahead = running_ahead(self.workload, self.layout)
        return round(sum(self.apart.values()) + self.peak_bytes + max(kept, ahead))

    @property
    def calibration(self) -> str | None:
        """The kept trace that the phases are of; None: they are reckoned."""
        known = self.workload.calibration
        return known.name if known is not None and self.lines[0].name in TRACED else None

    @property
    def host(self) -> HostAccount:
        """Memory of the host of one node."""
        return host_account(self.workload, self.layout)


@cached(4096)
def required_bytes(workload: Workload, layout: Layout) -> int:
    """The peak of a layout and its margin, for those who ask for no more."""
    return account(workload, layout).required_bytes


def samples(line: Phase, layout: Layout) -> int:
    """Samples that a phase holds at once."""
    return layout.batch.evaluation if line.evaluates else layout.batch.micro


def account(workload: Workload, layout: Layout, vendor: Vendor = "nvidia") -> Account:
    """Account for the memory that a layout needs.

    A micro batch of several samples is padded to the longest, unless samples are packed.
    """
    short = layout.batch.micro * _sample_rows(workload) < TILE_ROWS
    lines = _lines(workload, layout, several=layout.batch.micro > 1, short=short)
    sizes = [line.at(samples(line, layout)) for line in lines]
    most = max(sizes)
    return Account(workload, layout, lines, lines[sizes.index(most)], most, vendor)


def largest_micro_batch(workload: Workload, layout: Layout, budget_bytes: int) -> int:
    """The largest micro batch whose peak and margin fit a budget in bytes; 0: not even one sample.

    The layout's own micro batch does not matter. Evaluation is not looked at: its batch is its own.
    """
    if least_bytes(workload, layout) > budget_bytes:
        return 0
    most = _largest(workload, layout, budget_bytes, short=False)
    if _sample_rows(workload) >= TILE_ROWS:
        return most
    return max(most, _largest(workload, layout, budget_bytes, short=True))


def _largest(workload: Workload, layout: Layout, budget_bytes: int, *, short: bool) -> int:
    """The largest micro batch where the loss takes a whole tile; `short`: so much a sample.

    The tile takes the less of both, so that a micro batch fits if it does by one of them. What does
    not fit with one sample, which nothing pads, does not with several.
    """
    room = budget_bytes - _apart_bytes(workload, layout)
    one = min(_most(_bounds(workload, layout, several=False, short=short), room), 1)
    if not one:
        return 0
    return max(_most(_bounds(workload, layout, several=True, short=short), room), one)


@cached(4096)
def least_bytes(workload: Workload, layout: Layout) -> float:
    """Bytes that a device needs with no sample at all: what is always there, with its margin.

    Where a trace was kept nothing is known but by its phases: 0.
    """
    if workload.calibration is not None:
        return 0.0
    workload = of_rank(reached(workload, layout), layout.parallel.tensor)
    plan = sharding_of(workload, layout, accumulates=layout.batch.accumulation > 1)
    held = sum(term.bytes for term in always_held(workload, plan) if term.freed == At.END)
    return held * (1 + slack(workload, layout).still) + _apart_bytes(workload, layout)


def _apart_bytes(workload: Workload, layout: Layout) -> int:
    return sum(apart(layout.parallel.world, margin=workload.margin).values())


@cached(4096)
def _lines(
    workload: Workload, layout: Layout, *, several: bool, short: bool = False
) -> tuple[Phase, ...]:
    compared = workload.preference is not None
    padded = (several or compared) and not workload.data.packing
    rank = of_rank(reached(workload, layout), layout.parallel.tensor, several=several)
    plan = sharding_of(rank, layout, accumulates=layout.batch.accumulation > 1)
    run = pass_of(rank, layout, padded=padded, short=short, alone=not several)
    lines = phases(rank, plan, run, _share(workload, layout))
    traced = calibrated(workload, layout, padded=padded) if workload.calibration else ()
    of_host = tuple(_of_host(workload, layout)) if workload.shares_host_memory else ()
    if of_host:
        lines = timeline((*lines[0].course, *of_host))
    if not traced:
        return lines
    return (
        *timeline((*traced, *of_host)),
        *(line for line in lines if line.evaluates or line.name in AHEAD),
    )


def _of_host(workload: Workload, layout: Layout) -> Iterator[Term]:
    """What the host of a node holds, for each of its devices, where both share one memory.

    A sample more adds what a second adds to the first.
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
"""Moments before the first step, at which traces begin: no trace has them."""


def _sample_rows(workload: Workload) -> int:
    """Tokens of one sample for a loss that is taken in tiles; as many as a tile has for others."""
    if workload.loss != "chunked" or not is_tiled(workload.version("trl")):
        return TILE_ROWS
    asked = workload.preference
    return judged_tokens(workload) * (asked.sequences if asked is not None else 1)


def _share(workload: Workload, layout: Layout) -> int:
    """Samples of one device in one optimizer step, where something waits or is made for each."""
    written = workload.generation is not None and workload.generation.by_sample
    goes = written or workload.data.images > 0
    return layout.batch.micro * layout.batch.accumulation if goes else 1


class _Bounds(NamedTuple):
    """What the training phases need of a device, its allocator's slack put in."""

    fixed: float
    """Bytes of the phase that needs most with no sample at all."""
    lines: tuple[tuple[float, float], ...]
    """Bytes with no sample, and what each adds, of the phases that can be the highest with some."""


@cached(4096)
def _bounds(workload: Workload, layout: Layout, *, several: bool, short: bool) -> _Bounds:
    shares = slack(workload, layout)
    still, moving = 1 + shares.still, 1 + shares.moving
    lines = [
        (line.fixed_bytes * still, line.sample_bytes * moving)
        for line in _lines(workload, layout, several=several, short=short)
        if not line.evaluates
    ]
    return _Bounds(max(fixed for fixed, _ in lines), tuple(_highest(lines)))


def _highest(lines: Iterable[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """The lines that are above all others somewhere: of less steep ones those that start higher."""
    highest = -1.0
    for fixed, each in sorted(lines, key=lambda line: (-line[1], -line[0])):
        if each and fixed > highest:
            highest = fixed
            yield fixed, each


def _most(bounds: _Bounds, room: float) -> int:
    """Samples that fit in some bytes by every training phase's line."""
    if bounds.fixed > room:
        return 0
    return min((int((room - fixed) // each) for fixed, each in bounds.lines), default=1)
