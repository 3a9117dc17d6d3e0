"""The mean length of a batch's samples, if each is padded to the longest of the batch.

A batch of randomly drawn samples is as long as the largest of as many draws: its mean follows from
the shares of samples that are no longer than each length.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

from tunec.compiler.analyses.packing import Lengths
from tunec.compiler.ir.slots import Data, Objective
from tunec.schemas.objective_facts import OBJECTIVES

Counts = tuple[tuple[int, int], ...]
"""(tokens, number of samples with that length), sorted by tokens."""

_MEGA_BATCHES: Final = 50
"""The number of batches that are sorted together: transformers 4.40.2 to 5.23.0 trainer_pt_utils.py
`get_length_grouped_indices`, `mega_batch_mult`."""


def padded_counts(lengths: Lengths | None, data: Data, objective: Objective) -> Counts:
    """Lengths of samples that are padded to the longest of their batch; empty if there are none."""
    packs_or_writes = data.packing or OBJECTIVES[objective.kind].generates
    return () if lengths is None or lengths.is_mean or packs_or_writes else lengths.counts


def mean_length(counts: Counts, sequence: int) -> float:
    """The mean tokens of a sample, cut at `sequence`."""
    samples = sum(count for _, count in counts)
    return sum(min(length, sequence) * count for length, count in counts) / samples


def padded_length(counts: Counts, sequence: int, micro: int) -> float:
    """Mean tokens of each sample in random batches of `micro`, padding included."""
    return sum(length * share for length, share in _largest(_cut(counts, sequence), micro))


def uneven_share(counts: Counts, sequence: int, micro: int) -> float:
    """The share of random batches of `micro` whose samples differ in length."""
    samples = sum(count for _, count in counts)
    return 1 - sum((count / samples) ** micro for _, count in _cut(counts, sequence))


def grouped_length(counts: Counts, sequence: int, micro: int, accumulation: int) -> float:
    """Mean tokens of each sample if samples of similar length form a batch: group_by_length.

    transformers 4.40.2 to 5.23.0 trainer_pt_utils.py `LengthGroupedSampler`: megabatches of
    `train_batch_size x gradient_accumulation_steps` times 50, or a quarter of the data, each
    sorted.
    """
    samples = sum(count for _, count in counts)
    step = micro * accumulation
    times = max(1, min(samples // (4 * step), _MEGA_BATCHES))
    drawn = list(_evenly(_cut(counts, sequence), min(times * step, samples)))[::-1]
    longest = (len(drawn[at : at + micro]) * drawn[at] for at in range(0, len(drawn), micro))
    return sum(longest) / len(drawn)


def _cut(counts: Counts, sequence: int) -> Counts:
    found: dict[int, int] = {}
    for length, count in counts:
        found[min(length, sequence)] = found.get(min(length, sequence), 0) + count
    return tuple(sorted(found.items()))


def _largest(counts: Counts, draws: int) -> Iterator[tuple[int, float]]:
    """Each length with the share of batches in which it is the longest."""
    samples = sum(count for _, count in counts)
    passed = [0.0]
    for _, count in counts:
        passed.append(passed[-1] + count / samples)
    for (length, _), (before, here) in zip(counts, pairwise(passed), strict=True):
        yield length, here**draws - before**draws


def _evenly(counts: Iterable[tuple[int, int]], number: int) -> Iterator[int]:
    """The lengths of `number` samples, spread evenly over all samples."""
    every = tuple(counts)
    samples = sum(count for _, count in every)
    passed = said = 0
    for length, count in every:
        passed += count
        upto = (2 * passed * number + samples) // (2 * samples)
        yield from (length for _ in range(upto - said))
        said = upto
