"""The parts that ranks have of ZeRO's stages 1 and 2, and which rank may need the most memory.

The trained parameters lie flat behind each other in the order of the module tree, cut into as many
equal parts as there are ranks. A rank keeps the reduced gradients of its part in a buffer that has
room for every parameter of which it owns any piece, whole; it is allocated with the first of them
(deepspeed 0.19.8 `runtime/zero/stage_1_and_2.py`, `copy_grads_in_partition`: the sum of `numel`
over `params_in_partition`). A part through the embedding of a small model keeps all of it.

Ranks therefore differ by gigabytes: in their step, by the size of their buffer, and by how early
in the pass they have it. Which of them needs the most depends on what else is allocated then.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from tunec.compiler.analyses.memory.trained_tensors import (
    Gradient,
    Tensor,
    in_backward_order,
    trained_tensors,
)
from tunec.compiler.analyses.memory.workload import Workload
from tunec.schemas.caches import BoundedCache, cached


class Partition(NamedTuple):
    """The part of one rank, in elements."""

    rank: int
    elements: int
    """Elements of all parameters of which it owns a piece."""
    piece: int
    """Elements of the largest piece that it owns."""
    ends: int = 0
    """The end of the part among all trained elements."""
    part: int = 0
    """Elements of each rank's part."""
    apart: bool = False
    """Whether the rank adds each of its pieces to an fp32 part separately."""

    def has(self, each: Gradient) -> bool:
        """Whether the rank owns a piece of a gradient's tensor."""
        return self.ends - self.part - each.elements < each.begins < self.ends


NO_PARTITION = Partition(0, 0, 0)


@cached(2048)
def largest_partitions(
    workload: Workload,
    ranks: int,
    *,
    in_pass: bool = True,
    staying: int | None = None,
    sums: bool = False,
) -> tuple[Partition, ...]:
    """The parts of which one needs the most memory, that with the largest step first.

    `in_pass`: whether gradients are reduced in the order of the backward pass, and not at its end
    in the model's. `staying`: the elements from which on a gradient that a rank owns nothing of
    stays until the pass is over; None: none stays. `sums`: whether ranks add their gradients to
    fp32 sums, and have no buffer in their step.
    """
    tensors = trained_tensors(workload)
    found = partial(_largest, tensors, ranks, in_pass=in_pass, staying=staying, sums=sums)
    key = ranks, in_pass, staying, sums
    return _PARTITIONS.of((tensors,), key, lambda: tuple(dict.fromkeys(found())))


_PARTITIONS: Final = BoundedCache[tuple[Partition, ...]](
    "compiler.analyses.memory.partitions.partitions", 2048
)


def _largest(
    tensors: tuple[Tensor, ...], ranks: int, *, in_pass: bool, staying: int | None, sums: bool
) -> Iterator[Partition]:
    ends = list(accumulate(tensor.elements for tensor in tensors))
    if not ends or ends[-1] == 0:  # adapters of a pinned rank 0 have no elements
        yield NO_PARTITION
        return
    part = -(-ends[-1] // ranks)
    found = [part_of(ends, rank, part) for rank in _differing_ranks(ends, part)]
    yield max(found, key=_in_step)
    if sums:
        yield max(found, key=lambda each: each.piece)
    owned = {each: _owned(ends, each) for each in found}
    turns = _turns(tensors, in_pass=in_pass)
    first = {each: min(turns[owned[each]]) for each in found}
    most = 0
    for each in sorted(found, key=lambda each: (first[each], -each.elements)):
        if each.elements > most:
            yield each
        most = max(most, each.elements)
    if staying is not None:
        last = turns.index(max(turns))  # when its gradient comes, all that stay are there
        stays = [each.elements > staying and turn != last for turn, each in enumerate(tensors)]
        large = [each.elements * stay for each, stay in zip(tensors, stays, strict=True)]
        yield max(found, key=lambda each: each.elements - sum(large[owned[each]]))


def _in_step(each: Partition) -> int:
    """Bytes of a rank's step that others may not need, where the parameters have 16 bits.

    That is 2 bytes per element of its buffer, and the larger of 8 of its largest piece (the fp64
    copy for the norm) and 6 of its part (flattened, and made fp32).
    """
    return 2 * each.elements + max(8 * each.piece, 6 * each.part)


def _turns(tensors: tuple[Tensor, ...], *, in_pass: bool) -> list[int]:
    """When the gradient of each tensor is reduced: its place in the order of all."""
    if not in_pass:
        return list(range(len(tensors)))
    never = len(tensors)
    order = {each.begins: turn for turn, each in enumerate(in_backward_order(tensors))}
    begins = accumulate((each.elements for each in tensors), initial=0)
    return [
        never if each.idle else order[begin] for begin, each in zip(begins, tensors, strict=False)
    ]


def _owned(ends: Sequence[int], each: Partition) -> slice:
    """Which tensors a rank owns a piece of."""
    return slice(bisect_right(ends, each.rank * each.part), bisect_left(ends, each.ends) + 1)


def _differing_ranks(ends: list[int], part: int) -> list[int]:
    """One rank for each kind of part: parts that lie within one tensor are alike."""
    last = (ends[-1] - 1) // part
    edges = ((begin // part, (end - 1) // part) for begin, end in pairwise([0, *ends]))
    every = {rank for first, final in edges for rank in (first, first + 1, final)}
    return sorted(rank for rank in every if 0 <= rank <= last)


def part_of(ends: list[int], rank: int, part: int) -> Partition:
    """One rank's part of tensors that end at `ends`; `part`: elements of each part."""
    begin, end = rank * part, min((rank + 1) * part, ends[-1])
    first, last = bisect_right(ends, begin), bisect_left(ends, end)
    edges = [begin, *ends[first:last], end]
    piece = max(high - low for low, high in pairwise(edges))
    return Partition(rank, ends[last] - (ends[first - 1] if first else 0), piece, end, part)
