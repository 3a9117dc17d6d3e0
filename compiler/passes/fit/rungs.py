"""The possible shapes of a problem, with what is worked out of each once for all machines."""

from functools import cached_property, lru_cache
from itertools import count
from math import isqrt

from tunec.compiler.analyses.memory.account import least_bytes
from tunec.compiler.analyses.memory.workload import Layout
from tunec.compiler.passes.fit.problem import Problem, Shape, layout_of
from tunec.compiler.passes.fit.shapes import anywhere, global_batch, ladders

Ladder = tuple["Rung", ...]
"""Shapes that differ only in what is recomputed, the least first."""


class Rung:
    """A possible shape, and what it says whatever the machine and its memory."""

    def __init__(self, problem: Problem, shape: Shape, place: int) -> None:
        self.problem = problem
        self.shape = shape
        self.place = place
        """Its place among the possible shapes, the simplest first."""
        self.share, rest = divmod(global_batch(problem, shape.width), shape.width)
        self.divides = not rest
        """Whether each device has an equal share of the global batch."""

    @cached_property
    def smallest(self) -> Layout:
        """Its layout with one sample at a time."""
        return self.layout(1)

    @cached_property
    def least_bytes(self) -> float:
        """What a device needs with no sample at all; under FSDP that rests on the batch too: 0."""
        if self.shape.engine == "fsdp":
            return 0.0
        return least_bytes(self.problem.workload, self.smallest)

    @cached_property
    def roomiest(self) -> Layout | None:
        """Its layout with the largest micro batch, were there memory for it; None: it has none."""
        micro = self.largest(self.share) if self.divides else None
        return None if micro is None else self.layout(micro)

    def layout(self, micro: int) -> Layout:
        """Its layout with a micro batch."""
        return layout_of(self.problem, self.shape, micro, self.share // micro)

    def largest(self, most: int) -> int | None:
        """The largest micro batch that divides a device's share of the batch, or the pinned one.

        `most`: the largest that fits. No smaller one can be faster, so that only this one is timed.
        With the share S fixed, m samples at a time take S x hypot(T + D/m, L/m) of computing (T, D,
        L: seconds a sample, of expanding weights, of launches), which falls as m grows; so does
        what is moved in each of the S/m micro batches. Computing that shrinks hides less, but of
        each of two exchanges at most half as much (`communication`): their sum never grows.
        """
        micro, accumulation = self._pinned
        sizes = (
            size
            for size in _divisors(self.share)
            if size <= most
            and (micro is None or size == micro)
            and (accumulation is None or self.share // size == accumulation)
        )
        return next(sizes, None)

    @cached_property
    def _pinned(self) -> tuple[int | None, int | None]:
        pinned = self.problem.pinned
        return pinned.get("batch.micro"), pinned.get("batch.accumulation")


def rungs(problem: Problem) -> tuple[Ladder, ...]:
    """The possible shapes, those together that differ only in what is recomputed."""
    return _rungs(anywhere(problem))


@lru_cache(maxsize=1024)
def _rungs(problem: Problem) -> tuple[Ladder, ...]:
    places = count()
    return tuple(
        tuple(Rung(problem, shape, next(places)) for shape in ladder) for ladder in ladders(problem)
    )


@lru_cache(maxsize=1024)
def _divisors(number: int) -> tuple[int, ...]:
    """All divisors, largest first."""
    low = [each for each in range(1, isqrt(number) + 1) if number % each == 0]
    return tuple(sorted({*low, *(number // each for each in low)}, reverse=True))
