"""How many rows the samples of a data set fill if several share a row, as each trainer packs them.

trl 0.19.1 to 1.16.0 data_utils.py `pack_dataset` maps over batches of 1,000 samples in their order
(datasets `Dataset.map`, `batch_size`), so the rows depend on which samples meet; the same holds for
llamafactory 0.9.3 to 0.9.5 data/loader.py (`preprocessing_batch_size`).
"""

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Final, Literal

from msgspec import Struct

PackingStrategy = Literal[
    "bfd", "bfd_split", "wrapped", "knapsack", "multipack", "concatenated", "buffered", "joined"
]
"""bfd: best fit, what is too long is cut; bfd_split: it is split; wrapped: one stream of each
thousand, cut where a row is full; knapsack: a row takes the longest that fits until none does;
multipack: first fit in an order that is drawn; concatenated: one stream of all, its rest left out;
buffered: so too, in buffers of characters and with separators, which nobody knows before; joined:
the samples of a micro batch are a row without padding, and each counts as it does alone."""
_TOGETHER: Final = 1000
"""The number of samples that are packed together."""
_SHUFFLED: Final = 20_000
"""Samples that stand for all where trainers pack more at once: their rows differ by parts in a
thousand from those of any other draw."""
_BIN: Final = 200
"""The most samples that share a row: axolotl 0.13.2 to 0.19.0 utils/schemas/config.py
`sample_packing_bin_size`."""


class Lengths(Struct, frozen=True):
    """The known lengths of samples in tokens."""

    counts: tuple[tuple[int, int], ...] = ()
    """(tokens, number of samples with that length), sorted by tokens; only the mean if no more is
    known."""
    order: tuple[int, ...] = ()
    """The tokens of each sample in order; empty if the order is unknown."""
    is_mean: bool = False
    is_estimate: bool = False
    """Whether tokens were estimated from characters."""
    answers: tuple[tuple[int, int], ...] = ()
    """(tokens before the first that is trained if only answers are, number of samples); empty if
    unknown."""

    @property
    def samples(self) -> int | None:
        """The number of samples; None if only a mean is given."""
        return None if self.is_mean else sum(count for _, count in self.counts)


class Rows(Struct, frozen=True):
    """The number of rows in one pass over the data."""

    count: int
    is_exact: bool


def packed_rows(lengths: Lengths, samples: int, sequence: int, strategy: PackingStrategy) -> Rows:
    """Rows of `sequence` tokens that `samples` samples fill.

    Exact if it is known which samples are packed together: their order is known, or they are few
    enough, or all have one length. Otherwise each thousand is assumed to resemble all of them.
    """
    known = lengths.samples == samples and not lengths.is_estimate
    if strategy == "joined":
        return Rows(samples, is_exact=True)
    if strategy == "multipack":
        return Rows(_multipacked(lengths, samples, sequence), is_exact=False)
    if strategy in ("concatenated", "buffered"):
        there = sum(count for _, count in lengths.counts)
        tokens = sum(length * count for length, count in lengths.counts) * samples // there
        # llama-cookbook 0.0.5.post1 data/concatenator.py: a row is made when more than it is there
        return Rows(max(tokens - 1, 0) // sequence, known and strategy == "concatenated")
    pack = _PACKERS[strategy]
    if lengths.order and len(lengths.order) == samples:
        rows = sum(pack(part, sequence) for part in _parts(lengths.order))
        return Rows(rows, is_exact=not lengths.is_estimate)
    whole, rest = divmod(samples, _TOGETHER)
    rows = whole * pack(_drawn(lengths, _TOGETHER), sequence) if whole else 0
    rows += pack(_drawn(lengths, rest), sequence) if rest else 0
    alike = samples <= _TOGETHER or len(lengths.counts) == 1
    return Rows(rows, is_exact=known and alike)


def cut_tokens(lengths: Lengths, sequence: int) -> tuple[int, int]:
    """The number of samples longer than `sequence`, and the number of their tokens beyond it."""
    longer = [(length - sequence, count) for length, count in lengths.counts if length > sequence]
    return sum(count for _, count in longer), sum(over * count for over, count in longer)


def short_rows(lengths: Lengths, samples: int, sequence: int) -> Rows:
    """Those of `samples` samples that are no longer than `sequence`, projected from the lengths."""
    longer, _ = cut_tokens(lengths, sequence)
    return _kept_rows(lengths, samples, longer)


def answered_rows(lengths: Lengths, samples: int, sequence: int) -> Rows:
    """Those of `samples` samples whose answer begins before the cut, projected from the lengths.

    All of them where no other is known.
    """
    left_out = samples_without_answer(lengths, sequence)
    return _kept_rows(lengths, samples, left_out) if left_out else Rows(samples, is_exact=True)


def _kept_rows(lengths: Lengths, samples: int, left_out: int) -> Rows:
    known = lengths.samples
    if known is None or not known:
        return Rows(samples, is_exact=False)
    is_exact = known == samples and not lengths.is_estimate
    return Rows(samples * (known - left_out) // known, is_exact)


def samples_without_answer(lengths: Lengths, sequence: int) -> int:
    """The number of samples whose answer is cut off completely; 0 if that is unknown."""
    return sum(count for before, count in lengths.answers if before >= sequence)


def _multipacked(lengths: Lengths, samples: int, sequence: int) -> int:
    """Rows of all samples, projected from a number of them in a random order.

    Samples that are too long are left out: axolotl 0.13.2 to 0.19.0 utils/schemas/config.py
    `excess_length_strategy`, whose default is `drop`.
    """
    drawn = _drawn(lengths, min(samples, _SHUFFLED))
    Random(0).shuffle(drawn)  # noqa: S311  an order of many, not a secret
    kept = [each for each in drawn if each <= sequence]
    return math.ceil(first_fit(kept, sequence) * samples / len(drawn))


def _parts(order: Sequence[int]) -> Iterator[Sequence[int]]:
    return (order[at : at + _TOGETHER] for at in range(0, len(order), _TOGETHER))


def _drawn(lengths: Lengths, number: int) -> list[int]:
    """The lengths of `number` samples, spread evenly over all samples."""
    there = sum(count for _, count in lengths.counts)
    found: list[int] = []
    passed = 0
    for length, count in lengths.counts:
        passed += count
        found += [length] * (math.floor(passed * number / there + 0.5) - len(found))
    return found


# ── one batch of samples ─────────────────────────────────────────────────────────────────────────


def _best_fit(lengths: Iterable[int], sequence: int) -> int:
    """Rows if each sample, longest first, goes where it leaves the least space: `_pack_bfd`.

    trl 0.20.0 to 1.16.0; 0.19.1 `_pack_ffd` does it too. Samples that are too long are cut.
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
    """Rows if samples that are too long are split: trl 0.27.2 `_pack_bfd`, later `bfd_split`."""
    return _best_fit((piece for each in lengths for piece in _pieces(each, sequence)), sequence)


def _pieces(length: int, sequence: int) -> Iterator[int]:
    yield from (sequence for _ in range(length // sequence))
    yield length % sequence


def _wrapped(lengths: Iterable[int], sequence: int) -> int:
    """Rows of one stream of tokens, cut wherever a row is full: `_pack_wrapped`."""
    return math.ceil(sum(lengths) / sequence)


def _knapsack(lengths: Iterable[int], sequence: int) -> int:
    """Each row takes the longest that fits until none does.

    llamafactory 0.9.3 to 0.9.5 data/processor/processor_utils.py `greedy_knapsack`; packing and
    neat_packing have the same rows, and each ends in one token of padding (data/processor/
    supervised.py `PackedSupervisedDatasetProcessor`).
    """
    left = sorted(min(each, sequence) for each in lengths)
    rows = 0
    while left:
        rows, space = rows + 1, sequence
        while at := bisect_right(left, space):
            space -= left.pop(at - 1)
    return rows


def first_fit(lengths: Iterable[int], sequence: int) -> int:
    """Rows if each sample goes into the first with room: axolotl 0.13.2 to 0.19.0 `pack_group`.

    The samples keep their order, longest first or not; at most 200 samples share a row.
    """
    given = [each for each in lengths if each]
    leaves = 1 << max(len(given) - 1, 1).bit_length()
    spaces = [sequence] * (2 * leaves)
    shared = [0] * leaves
    rows = 0
    for length in given:
        at = 1
        while at < leaves:
            at = 2 * at + (spaces[2 * at] < length)
        row = at - leaves
        shared[row] += 1
        rows = max(rows, row + 1)
        spaces[at] = spaces[at] - length if shared[row] < _BIN else 0
        while at := at // 2:
            spaces[at] = max(spaces[2 * at], spaces[2 * at + 1])
    return rows


_PACKERS: Final[dict[PackingStrategy, Callable[[Iterable[int], int], int]]] = {
    "bfd": _best_fit,
    "bfd_split": _split,
    "wrapped": _wrapped,
    "knapsack": _knapsack,
}
