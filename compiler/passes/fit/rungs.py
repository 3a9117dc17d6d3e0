"""The possible shapes of a problem, with results that hold for all machines."""

from functools import cached_property
from itertools import count
from math import gcd, isqrt
from typing import Final, NamedTuple

from tunec.compiler.analyses.memory.account import largest_micro_batch, least_bytes, required_bytes
from tunec.compiler.analyses.memory.terms.host import host_account
from tunec.compiler.analyses.memory.vision import masks_together
from tunec.compiler.analyses.memory.workload import Layout
from tunec.compiler.passes.fit.problem import Problem, Shape, layout_of
from tunec.compiler.passes.fit.shapes import anywhere, global_batch, ladders, posed
from tunec.compiler.passes.fit.states import states_of
from tunec.schemas.caches import BoundedCache, cached
from tunec.schemas.frozen import replace
from tunec.schemas.terms import STEPS_IN_BACKWARD

Ladder = tuple["Rung", ...]
"""Shapes that differ only in what is recomputed, from least to most."""


class Fitting(NamedTuple):
    """The layouts of a shape that fit a given memory."""

    training: Layout
    """The layout with the largest possible micro batch."""
    whole: Layout
    """The layout with the largest micro batch, and an evaluation batch that also fits."""


class Rung:
    """A possible shape, with results that do not depend on the machine or its memory."""

    def __init__(self, problem: Problem, shape: Shape, place: int) -> None:
        self.problem = problem
        self.shape = shape
        self.place = place
        """Its index among the possible shapes, the simplest first."""
        self.share, rest = divmod(global_batch(problem, shape.width), shape.width)
        self.divides = not rest
        """Whether each device has an equal share of the global batch."""
        self._layouts: dict[int, Layout] = {}

    @cached_property
    def least(self) -> int | None:
        """The smallest micro batch that the batch and its pins allow; None: they allow none."""
        return next(reversed(self._sizes), None) if self.divides else None

    @cached_property
    def smallest(self) -> Layout:
        """Its layout with the smallest micro batch."""
        return self.layout(self.least or 1)

    @cached_property
    def is_lightest_at_once(self) -> bool:
        """Whether all of a device's share at once may need less memory than a part of it.

        Under FSDP no gradients of earlier micro batches then wait unsharded, as they do with
        accumulation; under ZeRO none are accumulated in fp32.
        """
        return self.shape.engine == "fsdp" or self.layout(self.share).states != self.smallest.states

    @cached_property
    def least_bytes(self) -> float:
        """Bytes that a device needs without any sample; under FSDP that depends on the batch: 0."""
        if self.shape.engine == "fsdp":
            return 0.0
        return least_bytes(self.problem.workload, (self.narrow or self).smallest)

    @cached_property
    def narrow(self) -> "Rung | None":
        """A rung that accumulates gradients in the engine's default dtype.

        None if they are accumulated in no other dtype (`sums_in_fp32`).
        """
        shape = self.shape
        own = states_of(self.problem.workload, shape.engine, shape.stage, fsdp=shape.fsdp[0])
        is_own = own.gradients == self.smallest.states.gradients
        if is_own or "states.gradients" in self.problem.pinned:
            return None
        pins = (*self.problem.pins, ("states.gradients", own.gradients))
        return Rung(replace(self.problem, pins=tuple(sorted(pins))), self.shape, self.place)

    @cached_property
    def host_bytes(self) -> int:
        """Bytes that a node's host needs."""
        return host_account(self.problem.workload, self.smallest).peak_bytes

    @cached_property
    def roomiest(self) -> Layout | None:
        """Its layout with the largest micro batch, given unlimited memory; None: it has none."""
        micro = self.largest(self.share) if self.divides else None
        return None if micro is None else self.layout(micro)

    def layout(self, micro: int) -> Layout:
        """Its layout with a micro batch."""
        if micro not in self._layouts:
            made = layout_of(self.problem, self.shape, micro, self.share // micro)
            self._layouts[micro] = made
        return self._layouts[micro]

    def largest(self, most: int) -> int | None:
        """The largest micro batch that divides a device's share of the batch, or the pinned one.

        `most`: the largest that fits. No smaller one can be faster, so that only this one is timed.
        With the share S fixed, m samples at a time take S x hypot(T + D/m, L/m) of computing (T, D,
        L: seconds a sample, of expanding weights, of launches), which falls as m grows; so does
        what is moved in each of the S/m micro batches. Computing that shrinks hides less, but of
        each of two exchanges at most half as much (`communication`): their sum never grows.
        """
        return next((size for size in self._sizes if size <= most), None)

    def fitting(self, budget: int, host_budget: int | None) -> Fitting | None:
        """The layouts that fit devices and a host with this many bytes; None: none does."""
        most = self.most(budget) if self.divides else 0
        if most == 0 or self.lacks_host(host_budget):
            return None
        micro = self.largest(most)
        while micro is not None:
            training = self.layout(micro)
            whole = self.evaluating(training, budget)
            if required_bytes(self.problem.workload, whole) <= budget:
                return Fitting(training, whole)
            # elsewhere each sample takes as much as any other, so that fewer need not be tried
            micro = self.largest(micro - 1) if masks_together(self.problem.workload) else None
        return None

    def can_hold(self, budget: int) -> bool:
        """Whether a device has room for what a shape always holds, whatever it recomputes.

        It is a quick test, since that amount is the same on every machine.
        """
        return self.least_bytes <= budget

    def lacks_host(self, host_budget: int | None) -> bool:
        """Whether a node's host has too little memory; None: its memory is unknown."""
        return host_budget is not None and self.host_bytes > host_budget

    def most(self, budget: int) -> int:
        """The largest micro batch that fits, or all of a device's share at once."""
        if not self.can_hold(budget):
            return 0
        workload = self.problem.workload
        most = largest_micro_batch(workload, self.smallest, budget)
        if most >= self.share or not self.is_lightest_at_once:
            return most
        fitting = largest_micro_batch(workload, self.layout(self.share), budget)
        return self.share if fitting >= self.share else most

    def evaluating(self, layout: Layout, budget: int) -> Layout:
        """The layout with its evaluation batch halved until it fits as training does.

        All devices together evaluate whole groups of answers.
        """
        if "batch.evaluation" in self.problem.pinned:
            return layout
        least = self._least_evaluated
        layout = _evaluating_at_once(layout, -(-layout.batch.evaluation // least) * least)
        while layout.batch.evaluation > least:
            if required_bytes(self.problem.workload, layout) <= budget:
                break
            groups = layout.batch.evaluation // least
            layout = _evaluating_at_once(layout, groups // 2 * least)
        return layout

    @cached_property
    def _least_evaluated(self) -> int:
        """The fewest samples at once with which all devices evaluate whole groups of answers."""
        if self.problem.workload.data.evaluation is None:
            return 1
        return self.problem.group // gcd(self.problem.group, self.shape.width)

    @cached_property
    def _sizes(self) -> tuple[int, ...]:
        """The micro batches that divide a device's share and that pins allow, largest first."""
        pinned, every = self.problem.pinned, _divisors(self.share)
        micro, accumulation = pinned.get("batch.micro"), pinned.get("batch.accumulation")
        if self.problem.workload.optimizer.name in STEPS_IN_BACKWARD:
            every = every[:1]  # each micro batch is a step
        if micro is None and accumulation is None:
            return every
        return tuple(
            size
            for size in every
            if micro in (None, size) and accumulation in (None, self.share // size)
        )


def _evaluating_at_once(layout: Layout, samples: int) -> Layout:
    if samples == layout.batch.evaluation:
        return layout
    return replace(layout, batch=replace(layout.batch, evaluation=samples))


def rungs(problem: Problem) -> tuple[Ladder, ...]:
    """The possible shapes, grouped by ladder."""
    return _RUNGS.of((), posed(problem), lambda: _rungs(anywhere(problem)))


_RUNGS: Final = BoundedCache[tuple[Ladder, ...]]("compiler.passes.fit.rungs.rungs", 256)


def _rungs(problem: Problem) -> tuple[Ladder, ...]:
    places = count()
    return tuple(
        tuple(Rung(problem, shape, next(places)) for shape in ladder) for ladder in ladders(problem)
    )


_MOST_TRIED: Final = 2**20
"""More samples at once than any device holds: divisors between it and its counterpart are no micro
batch, and to look for them would take hours where a global batch has nineteen digits."""


@cached(1024)
def _divisors(number: int) -> tuple[int, ...]:
    """All possible micro batches or accumulations of a number, largest first."""
    low = [each for each in range(1, min(isqrt(number), _MOST_TRIED) + 1) if number % each == 0]
    return tuple(sorted({*low, *(number // each for each in low)}, reverse=True))
