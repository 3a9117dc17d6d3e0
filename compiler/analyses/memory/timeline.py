"""The course of a run: terms that are born and freed, and the phases at which they are summed.

A term is a number of bytes with a name and a life. Nothing can be highest but where something is
born, so that the phases of a run are the births of its terms, in the order in which they come.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import NamedTuple

Sizes = Mapping[str, float]
"""Bytes by name."""


class Moment(NamedTuple):
    """A place in the course of a run."""

    at: float
    name: str = ""
    """Of the phase that begins here; none where it only parts what is before from what is after."""
    layers: float = 1.0
    """The share of the layers that have run and are not differentiated yet."""
    evaluates: bool = False
    """Whether its samples are those of an evaluation batch."""


class Term(NamedTuple):
    """Bytes with a name, from one moment until another."""

    name: str
    bytes: int
    born: Moment
    freed: Moment
    """The last moment at which it is there."""
    by_sample: bool = False
    """Whether each sample of a batch has as much."""
    by_layer: bool = False
    """Whether of it only the share is there that `Moment.layers` tells."""

    def at(self, moment: Moment) -> int:
        """Bytes of it at a moment of its life."""
        return round(self.bytes * moment.layers) if self.by_layer else self.bytes


def lasting(sizes: Sizes, born: Moment, freed: Moment) -> list[Term]:
    """Terms that do not depend on the micro batch, in whole bytes."""
    return [Term(name, round(size), born, freed) for name, size in sizes.items()]


def of_samples(
    sizes: Sizes, born: Moment, freed: Moment, sequences: int = 1, *, by_layer: bool = False
) -> list[Term]:
    """Terms of each sample, which has so many sequences of those sizes."""
    return [
        Term(name, round(size) * sequences, born, freed, True, by_layer)
        for name, size in sizes.items()
    ]


def total(sizes: Sizes) -> int:
    """All of some sizes together, each in whole bytes."""
    return sum(map(round, sizes.values()))


class Phase(NamedTuple):
    """What is alive at a moment; its bytes are a line over the samples of a batch."""

    moment: Moment
    fixed_bytes: int
    sample_bytes: int
    course: tuple[Term, ...]
    """All terms of the run, alive or not."""

    @property
    def name(self) -> str:
        """The name that is shown."""
        return self.moment.name

    @property
    def evaluates(self) -> bool:
        """Whether its samples are those of an evaluation batch."""
        return self.moment.evaluates

    def at(self, samples: int) -> int:
        """All bytes for a batch."""
        return self.fixed_bytes + self.sample_bytes * samples

    def terms(self, samples: int) -> dict[str, int]:
        """Bytes by name for a batch, empty terms left out."""
        at, found = self.moment.at, dict[str, int]()
        alive = [term for term in self.course if term.born.at <= at <= term.freed.at]
        for term in sorted(alive, key=lambda term: term.by_sample):
            size = term.at(self.moment) * (samples if term.by_sample else 1)
            if size:
                found[term.name] = found.get(term.name, 0) + size
        return found


def timeline(terms: Iterable[Term]) -> tuple[Phase, ...]:
    """The phases of a run, in their order: what is alive where a term is born."""
    course = tuple(terms)
    born = {term.born.at: term.born for term in course if term.born.name}
    places = sorted(born)
    moments = [born[place] for place in places]
    # what comes with each moment and, after the last, what never goes
    fixed, each = [0] * (len(places) + 1), [0] * (len(places) + 1)
    waiting = [0] * len(places)
    for term in course:
        begin = bisect_left(places, term.born.at)
        end = bisect_right(places, term.freed.at, begin)
        if term.by_layer:
            for index in range(begin, end):
                waiting[index] += term.at(moments[index])
            continue
        sums = each if term.by_sample else fixed
        sums[begin] += term.bytes
        sums[end] -= term.bytes
    return tuple(
        Phase(moment, still, moving + more, course)
        for moment, still, moving, more in zip(
            moments, accumulate(fixed), accumulate(each), waiting, strict=False
        )
    )
