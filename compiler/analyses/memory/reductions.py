"""How ZeRO empties its bucket on the way through a backward pass: what is copied, and when.

Gradients come in the order opposite to the model's own. One that does not fit into the bucket any
more has what lies there reduced first, and waits; one that is larger than the whole bucket stays
where autograd made it and is reduced when the next comes (deepspeed 0.19.8
`runtime/zero/stage_1_and_2.py`, `reduce_independent_p_g_buckets_and_remove_grads`; `stage3.py`, the
same). What is reduced is concatenated anew: at stage 3 all of it but a single tensor of which every
rank has as much (`runtime/comm/coalesced_collectives.py`, `reduce_scatter_coalesced`), before that
what several ranks own, in groups that end when they exceed the bucket size (`average_tensor`,
`allreduce_and_scatter`); torch's `flatten_dense_tensors` copies no single tensor. Where stage 3
gathers a block of experts as one, its gradients go to the bucket when all are there, in the model's
order (`stage3.py`, `reduce_leaf_module_grads`).
"""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple

from tunec.compiler.analyses.memory.partition import Partition, Tensor, trained_tensors
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.ir.caches import cached
from tunec.compiler.ir.kept import Kept


class Reduction(NamedTuple):
    """One reduction; sizes in elements."""

    number: int
    """Counted from 1 in the order in which they come."""
    filled: int
    """What the bucket holds."""
    copied: int
    """Concatenated for it."""
    summed: int
    """Elements reduced at once: concatenated ones, or one tensor alone."""
    apart: int
    """Gradients alive outside of the bucket: one larger than it, and the one that has come."""
    left: float
    """The share of all layers that the pass has not reached."""
    inside: bool
    """Whether a layer is being differentiated."""
    is_whole: bool
    """Whether that layer's feed-forward still waits for its gradients but the last matrix's."""
    held: bool
    """Whether an earlier reduction brought the rank gradients of its own."""
    later: int = 0
    """Gradients that come later."""
    brings: bool = False
    """Whether this one is the first that brings the rank gradients of its own."""
    own: int = 0
    """The largest piece of one gradient in the bucket that the rank adds to an fp32 part."""


class Reductions(NamedTuple):
    """Those of a backward pass, as gradients come."""

    highest: tuple[Reduction, ...]
    """Those that no other one exceeds in everything."""
    holds: bool
    """Whether the rank has gradients of its own before the last one."""


@cached(1024)
def reductions(
    workload: Workload,
    bucket: int,
    own: Partition,
    ranks: int = 1,
    *,
    blocks: bool = False,
    apart: bool = False,
) -> Reductions:
    """The reductions of a backward pass.

    `bucket`: elements of the reduce bucket; `own`: the part of the trained elements that the rank
    of interest keeps gradients of; `ranks`: over which stage 3 splits each gradient; `blocks`:
    whether it gathers blocks of experts as one; `apart`: whether that rank adds each of its pieces
    to an fp32 part by itself.
    """
    tensors = trained_tensors(workload)
    own = own._replace(apart=apart)
    made = partial(_highest, tensors, bucket, own, ranks, blocks=blocks)
    return _REDUCTIONS.of((tensors,), (bucket, own, ranks, blocks), made)


_REDUCTIONS: Final = Kept[Reductions](1024)


def _highest(
    tensors: tuple[Tensor, ...], bucket: int, own: Partition, ranks: int, *, blocks: bool
) -> Reductions:
    found: list[Reduction] = []
    holds = False
    arriving = _arriving(tensors)
    for each in _all(_block_by_block(arriving) if blocks else arriving, bucket, own, ranks):
        if not any(_covers(other, each) for other in found):
            found = [other for other in found if not _covers(each, other)]
            found.append(each)
        holds = each.held
    return Reductions(tuple(found), holds)


@cached(1024)
def reductions_at_end(workload: Workload, bucket: int, own: Partition) -> tuple[Reduction, ...]:
    """The reductions of stage 1, in the order of the model: it waits for all gradients.

    deepspeed 0.19.8 `runtime/zero/stage_1_and_2.py`, `reduce_gradients`.
    """
    found, begins = [], 0
    tensors = trained_tensors(workload)
    for each in tensors:
        if not each.idle:
            found.append(_Gradient(each.elements, begins, 0.0, each))
        begins += each.elements
    return tuple(_all(found, bucket, own, 1, total=begins))


def _covers(one: Reduction, other: Reduction) -> bool:
    """Whether one needs at least as much as the other in every respect."""
    return (
        one.copied + one.apart >= other.copied + other.apart
        and one.left >= other.left
        and one.inside >= other.inside
        and one.is_whole >= other.is_whole
        and one.held >= other.held
        and one.own >= other.own
    )


class _Gradient(NamedTuple):
    elements: int
    begins: int
    """Where the parameter begins among all trained elements."""
    left: float
    tensor: Tensor
    beside: int = 0
    """Elements of gradients of its block that are there too, and not yet moved."""


def _arriving(tensors: tuple[Tensor, ...]) -> list[_Gradient]:
    """Gradients in the order in which they come; some never do."""
    layers = len({each.layer for each in tensors if each.layer is not None})
    begins = sum(each.elements for each in tensors)
    seen: set[object] = set()
    found = []
    for each in reversed(tensors):
        begins -= each.elements
        if each.idle:
            continue
        if each.layer is not None:
            seen.add(each.layer)
        left = 1 - len(seen) / layers if layers else 0.0
        found.append(_Gradient(each.elements, begins, left, each))
    return found


def _block_by_block(gradients: Iterable[_Gradient]) -> Iterator[_Gradient]:
    """Gradients in their order, where those of a block of experts wait for each other."""
    for (layer, in_block), run in groupby(
        gradients, key=lambda each: (each.tensor.layer, each.tensor.in_block)
    ):
        if layer is None or not in_block:
            yield from run
            continue
        members = list(run)[::-1]
        beside = sum(each.elements for each in members)
        for each in members:
            beside -= each.elements
            own = each.tensor._replace(ends_feed_forward=False)
            yield each._replace(tensor=own, beside=beside)


def _all(
    gradients: Iterable[_Gradient], bucket: int, own: Partition, ranks: int, total: int = 0
) -> Iterator[Reduction]:
    """Every reduction; `total`: of all elements, where gradients come in the model's order."""
    inside: list[_Gradient] = []
    filled, number, reached, held = 0, 0, False, False
    begins = own.ends - own.part if total else 0
    for each in gradients:
        if filled and filled + each.elements > bucket:
            number += 1
            one = _reduction(number, inside, bucket, own, ranks, each, held=held)
            later = total - each.begins - each.elements if total else one.later
            yield one._replace(later=later, brings=reached and not held)
            held, filled, inside = held or reached, 0, []
        filled += each.elements
        inside.append(each)
        reached = reached or begins - each.elements < each.begins < own.ends
    if inside:
        last = _reduction(number + 1, inside, bucket, own, ranks, None, held=held)
        yield last._replace(brings=reached and not held)


def _reduction(
    number: int,
    inside: list[_Gradient],
    bucket: int,
    own: Partition,
    ranks: int,
    coming: _Gradient | None,
    *,
    held: bool,
) -> Reduction:
    filled = sum(each.elements for each in inside)
    whole = 0 if len(inside) == 1 and filled % ranks == 0 else filled
    copied, summed, mine = _copied(inside, bucket, own) if own.part else (whole, filled, 0)
    apart = (filled if filled > bucket else 0) + (coming.elements + coming.beside if coming else 0)
    return Reduction(
        number,
        filled,
        copied,
        summed,
        apart,
        coming.left if coming else 0.0,
        inside=coming is not None and coming.tensor.layer is not None,
        is_whole=coming is not None and coming.tensor.ends_feed_forward,
        held=held,
        later=coming.begins if coming else 0,
        own=mine,
    )


def _copied(inside: list[_Gradient], bucket: int, own: Partition) -> tuple[int, int, int]:
    """Elements of the largest group of several ranks' pieces, of the largest at all, and own.

    The last is the largest piece of the rank of interest, where it goes apart.
    """
    most, largest, group, pieces, mine = 0, 0, 0, 0, 0
    for rank, run in groupby(_pieces(inside, own.part), key=lambda piece: piece[0]):
        sizes = [elements for _, elements in run]
        group, pieces = group + sum(sizes), pieces + 1
        if own.apart and rank == own.rank:
            mine, pieces = max(mine, *sizes), pieces + len(sizes) - 1
        largest = max(largest, group)
        if pieces > 1:
            most = max(most, group)
        if group > bucket:
            group, pieces = 0, 0
    return most, largest, mine


def _pieces(inside: list[_Gradient], part: int) -> Iterator[tuple[int, int]]:
    """Rank and elements of each piece, in the order in which they lie in the bucket."""
    for each in inside:
        begin, end = each.begins, each.begins + each.elements
        while begin < end:
            rank = begin // part
            stop = min(end, (rank + 1) * part)
            yield rank, stop - begin
            begin = stop
