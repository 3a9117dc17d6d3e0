"""The cost of batches of samples: padded, grouped by length, or packed by each trainer."""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from tunec.compiler.analyses.packing import Lengths, PackingStrategy, packed_rows
from tunec.compiler.analyses.padding import grouped_length, mean_length, padded_length


class Way(Struct, frozen=True):
    """One way to make batches of an epoch's samples."""

    name: str
    by: str
    """The program that does this, with its releases."""
    rows: int
    """The number of samples, or of packed rows."""
    computed: int
    """The number of tokens that are computed, including padding."""
    used: float
    """The share of computed tokens that are data."""
    is_exact: bool


_PACKERS: Final[tuple[tuple[PackingStrategy, str, str], ...]] = (
    ("bfd", "packed bfd", "trl 0.20 on; ffd of 0.19"),
    ("bfd_split", "packed bfd_split", "trl 0.28 on; bfd of 0.27"),
    ("wrapped", "packed wrapped", "trl 0.19 on"),
    ("multipack", "sample_packing", "axolotl"),
    ("knapsack", "packing, neat_packing", "llamafactory"),
)
"""The name and the program of each packing strategy."""


def ways(lengths: Lengths, sequence: int, micro: int, accumulation: int = 1) -> Iterator[Way]:
    """Every way to batch samples at a sequence length in tokens, with `micro` samples a batch."""
    counts = lengths.counts
    samples = sum(count for _, count in counts)
    data = mean_length(counts, sequence) * samples
    padded = {
        "padded": ("samples in random order", padded_length(counts, sequence, micro)),
        "group_by_length": (
            "trainers of transformers",
            grouped_length(counts, sequence, micro, accumulation),
        ),
    }
    for name, (by, length) in padded.items():
        computed = round(length * samples)
        yield Way(name, by, samples, computed, data / computed, is_exact=False)
    for strategy, name, by in _PACKERS:
        rows = packed_rows(lengths, samples, sequence, strategy)
        if not rows.count:
            continue
        # the last token of llamafactory's rows is padding that is never removed
        row = sequence + (strategy == "knapsack")
        yield Way(
            name,
            by,
            rows.count,
            rows.count * row,
            _kept(lengths, sequence, strategy) / (rows.count * row),
            rows.is_exact,
        )


def _kept(lengths: Lengths, sequence: int, strategy: PackingStrategy) -> float:
    """The number of the samples' tokens that a strategy keeps."""
    if strategy in ("bfd_split", "wrapped"):
        return sum(length * count for length, count in lengths.counts)
    if strategy == "multipack":
        return sum(length * count for length, count in lengths.counts if length <= sequence)
    return sum(min(length, sequence) * count for length, count in lengths.counts)
