"""Which rank keeps most gradients at ZeRO stages 1 and 2, and how many.

The trained parameters lie flat behind each other in the order of the module tree, cut into as many
equal parts as there are ranks. A rank keeps the reduced gradients of its part in a buffer that has
room for every parameter of which it owns any piece, whole (deepspeed 0.19.8
`runtime/zero/stage_1_and_2.py`, `copy_grads_in_partition`: the sum of `numel` over
`params_in_partition`). A part through the embedding of a small model keeps all of it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import accumulate, groupby, pairwise
from math import prod
from typing import NamedTuple

from tunec.compiler.analyses.memory.workload import Workload
from tunec.schemas.models.architecture import Module


class Partition(NamedTuple):
    """The part of one rank, in elements."""

    rank: int
    elements: int
    """Of all parameters that it owns a piece of."""
    piece: int
    """Of the largest piece that it owns."""


NO_PARTITION = Partition(0, 0, 0)


@lru_cache(maxsize=2048)
def largest_partition(workload: Workload, ranks: int) -> Partition:
    """Find the rank that needs most in its step.

    That is 2 bytes an element of its buffer, and the larger of 8 of its largest piece (the fp64
    copy for the norm) and 6 of its part (flattened, and made fp32).
    """
    ends = list(accumulate(trained_sizes(workload)))
    if not ends:
        return NO_PARTITION
    part = -(-ends[-1] // ranks)
    found = (_partition(ends, rank, part) for rank in range(-(-ends[-1] // part)))
    return max(found, key=lambda each: 2 * each.elements + max(8 * each.piece, 6 * part))


def _partition(ends: list[int], rank: int, part: int) -> Partition:
    begin, end = rank * part, min((rank + 1) * part, ends[-1])
    first, last = bisect_right(ends, begin), bisect_left(ends, end)
    edges = [begin, *ends[first:last], end]
    piece = max(high - low for low, high in pairwise(edges))
    return Partition(rank, ends[last] - (ends[first - 1] if first else 0), piece)


def trained_sizes(workload: Workload) -> Iterator[int]:
    """Elements of every trained tensor, in the order in which the model gives its parameters."""
    rank = workload.adapter.rank
    for module in _in_order(workload.adapted):
        yield from (rank * prod(module.shape[1:]), rank * module.shape[0])
    for module in _in_order(workload.trained):
        yield prod(module.shape)
        if module.bias:
            yield module.bias


def _in_order(modules: Iterable[Module]) -> Iterator[Module]:
    """Each module once for every copy, layer by layer."""
    for _, run in groupby(modules, key=lambda module: module.path.partition("{}")[0]):
        copies = [(place[:1], module) for module in run for place in module.places()]
        yield from (module for _, module in sorted(copies, key=lambda copy: copy[0]))
