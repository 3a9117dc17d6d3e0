"""The groups in which ranks' pieces of a bucket are copied, counted without a loop over ranks."""

from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from typing import NamedTuple

from msgspec import Struct


class Copied(NamedTuple):
    """Elements of the largest groups of one bucket."""

    most: int
    """With pieces of several ranks."""
    largest: int
    """With pieces of any ranks."""
    own: int
    """With the largest piece of the rank of interest."""


def copied(
    stretches: Iterable[tuple[int, int]], bucket: int, part: int, apart: int | None
) -> Copied:
    """The largest groups of a bucket that holds stretches of the flat parameters.

    Each rank owns `part` elements, and a group ends when it exceeds the bucket size. `apart` is the
    rank whose pieces are copied separately, or None.
    """
    groups, own = _Groups(bucket), 0
    for rank, run in groupby(_pieces(stretches, part, apart), key=lambda piece: piece[0]):
        pieces = list(run)
        if rank == apart:
            own = max(own, *(elements for _, elements, _ in pieces))
            groups.take(sum(elements for _, elements, _ in pieces), len(pieces))
        elif len(pieces) == 1:
            groups.take_alike(*pieces[0][1:])
        else:
            groups.take(sum(elements for _, elements, _ in pieces), 1)
    return Copied(groups.most, groups.largest, own)


class _Groups(Struct):
    bucket: int
    most: int = 0
    largest: int = 0
    group: int = 0
    pieces: int = 0

    def take(self, elements: int, pieces: int) -> None:
        """Add pieces to the group; with the last one it may exceed the bucket, and ends."""
        self.group, self.pieces = self.group + elements, self.pieces + pieces
        self.largest = max(self.largest, self.group)
        if self.pieces > 1:
            self.most = max(self.most, self.group)
        if self.group > self.bucket:
            self.group, self.pieces = 0, 0

    def take_alike(self, elements: int, ranks: int) -> None:
        """Add a piece of each of several ranks: end this group, fill equal ones, begin another."""
        first = min(ranks, (self.bucket - self.group) // elements + 1)
        self.take(first * elements, first)
        each = self.bucket // elements + 1
        full, rest = divmod(ranks - first, each)
        if full:
            self.take(each * elements, each)
        if rest:
            self.take(rest * elements, rest)


def _pieces(
    stretches: Iterable[tuple[int, int]], part: int, apart: int | None
) -> Iterator[tuple[int, int, int]]:
    """The first rank of each run of equal pieces, the elements of one piece, and their number."""
    for begin, end in stretches:
        rank = begin // part
        stop = min(end, (rank + 1) * part)
        yield rank, stop - begin, 1
        yield from ((at, part, ranks) for at, ranks in _runs(rank + 1, end // part, apart))
        if stop < end and end % part:
            yield end // part, end % part, 1


def _runs(first: int, end: int, apart: int | None) -> Iterator[tuple[int, int]]:
    """Split a range of ranks into runs, with the rank of interest as its own run."""
    if apart is not None and first <= apart < end:
        cuts = [first, apart, apart + 1, end]
    else:
        cuts = [first, end]
    yield from ((one, other - one) for one, other in pairwise(cuts) if other > one)
