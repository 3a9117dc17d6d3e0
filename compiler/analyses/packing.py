"""How many rows the samples of a data set fill when several share one, as TRL packs them.

trl 0.19.1 to 1.16.0 data_utils.py `pack_dataset` maps over batches of 1,000 samples in their order
(datasets `Dataset.map`, `batch_size`), so what the rows are depends on which samples meet.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Literal

from msgspec import Struct

PackingStrategy = Literal["bfd", "bfd_split", "wrapped", "concatenated", "buffered"]
"""bfd: best fit, what is too long is cut; bfd_split: it is split; wrapped: one stream of each
thousand, cut where a row is full; concatenated: one stream of all, its rest left out; buffered: so
too, in buffers of characters and with separators, which nobody knows before."""
_TOGETHER: Final = 1000
"""Samples that are packed together."""


class Lengths(Struct, frozen=True):
    """What is known of the tokens of each sample."""

    counts: tuple[tuple[int, int], ...] = ()
    """(tokens, how many samples have so many), by their tokens; the mean alone where it is that."""
    order: tuple[int, ...] = ()
    """Tokens of each sample as they come; empty: the order is not known."""
    is_mean: bool = False

    @property
    def samples(self) -> int | None:
        """How many samples there are; None where only a mean is given."""
        return None if self.is_mean else sum(count for _, count in self.counts)


class Rows(Struct, frozen=True):
    """What one pass over the data draws from."""

    count: int
    is_exact: bool


def packed_rows(lengths: Lengths, samples: int, sequence: int, strategy: PackingStrategy) -> Rows:
    """Rows of `sequence` tokens that so many samples fill.

    Exact where it is known which samples are packed together: they are in order, or few enough, or
    all of one length. Else each thousand is taken to be like all of them.
    """
    known = lengths.samples == samples
    if strategy in ("concatenated", "buffered"):
        there = sum(count for _, count in lengths.counts)
        tokens = sum(length * count for length, count in lengths.counts) * samples // there
        # llama-cookbook 0.0.5.post1 data/concatenator.py: a row is made when more than it is there
        return Rows(max(tokens - 1, 0) // sequence, known and strategy == "concatenated")
    pack = _PACKERS[strategy]
    if lengths.order and len(lengths.order) == samples:
        return Rows(sum(pack(part, sequence) for part in _parts(lengths.order)), is_exact=True)
    whole, rest = divmod(samples, _TOGETHER)
    rows = whole * pack(_drawn(lengths, _TOGETHER), sequence) if whole else 0
    rows += pack(_drawn(lengths, rest), sequence) if rest else 0
    alike = samples <= _TOGETHER or len(lengths.counts) == 1
    return Rows(rows, is_exact=known and alike)


def cut_tokens(lengths: Lengths, sequence: int) -> tuple[int, int]:
    """Samples longer than `sequence`, and the tokens of them beyond it."""
    longer = [(length - sequence, count) for length, count in lengths.counts if length > sequence]
    return sum(count for _, count in longer), sum(over * count for over, count in longer)


def _parts(order: Sequence[int]) -> Iterator[Sequence[int]]:
    return (order[at : at + _TOGETHER] for at in range(0, len(order), _TOGETHER))


def _drawn(lengths: Lengths, number: int) -> list[int]:
    """So many samples, spread evenly over all that there are."""
    there = sum(count for _, count in lengths.counts)
    found: list[int] = []
    passed = 0
    for length, count in lengths.counts:
        passed += count
        found += [length] * (math.floor(passed * number / there + 0.5) - len(found))
    return found


# ── one batch of samples ─────────────────────────────────────────────────────────────────────────


def _best_fit(lengths: Iterable[int], sequence: int) -> int:
    """Longest first, each into the row where it leaves least: `_pack_bfd`.

    trl 0.20.0 to 1.16.0; 0.19.1 `_pack_ffd` does it too. What is too long is cut.
    """
    spaces: list[int] = []
    rows = 0
    for length in sorted((min(each, sequence) for each in lengths), reverse=True):
        if length == 0:
            continue
        at = bisect_left(spaces, length)
        if at == len(spaces):
            rows, space = rows + 1, sequence
        else:
            space = spaces.pop(at)
        if space > length:
            insort(spaces, space - length)
    return rows


def _split(lengths: Iterable[int], sequence: int) -> int:
    """What is too long goes on as a piece of its own: trl 0.27.2 `_pack_bfd`, later `bfd_split`."""
    return _best_fit((piece for each in lengths for piece in _pieces(each, sequence)), sequence)


def _pieces(length: int, sequence: int) -> Iterator[int]:
    yield from (sequence for _ in range(length // sequence))
    yield length % sequence


def _wrapped(lengths: Iterable[int], sequence: int) -> int:
    """One stream of tokens, cut wherever a row is full: `_pack_wrapped`."""
    return math.ceil(sum(lengths) / sequence)


_PACKERS: Final[dict[PackingStrategy, Callable[[Iterable[int], int], int]]] = {
    "bfd": _best_fit,
    "bfd_split": _split,
    "wrapped": _wrapped,
}
