"""How ZeRO empties its bucket during a backward pass: what is copied, and when.

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
from typing import Final, Literal, NamedTuple

from tunec.compiler.analyses.memory.bucket_groups import Copied, copied
from tunec.compiler.analyses.memory.partitions import Partition
from tunec.compiler.analyses.memory.trained_tensors import (
    Gradient,
    Tensor,
    in_backward_order,
    trained_tensors,
)
from tunec.compiler.analyses.memory.workload import Workload
from tunec.schemas.caches import BoundedCache, cached

Keeps = Literal["own", "others", "none"]
"""Which gradients larger than the bucket stay until the pass is over: those of which the rank owns
a piece, those of which it owns nothing, or none."""


def stays(each: Gradient, bucket: int, own: Partition, keeps: Keeps) -> bool:
    """Whether a gradient stays until the pass is over."""
    return keeps != "none" and each.elements > bucket and own.has(each) == (keeps == "own")


class Reduction(NamedTuple):
    """One reduction; sizes in elements."""

    number: int
    """The number of the reduction, counted from 1."""
    filled: int
    """Elements in the bucket."""
    copied: int
    """Elements that are concatenated for it."""
    summed: int
    """Elements reduced at once: concatenated ones, or one tensor alone."""
    apart: int
    """Gradients outside the bucket: one that is larger than it, and the newest one."""
    left: float
    """The share of all layers that the backward pass has not reached; below 0: it is in the vision
    tower, and by how much of it."""
    inside: bool
    """Whether a layer is being differentiated."""
    is_whole: bool
    """Whether that layer's feed-forward has only the gradient of its last matrix so far."""
    held: bool
    """Whether an earlier reduction gave the rank gradients of its own part."""
    later: int = 0
    """Elements of gradients that come later."""
    brings: bool = False
    """Whether this is the first reduction that gives the rank gradients of its own part."""
    own: int = 0
    """The largest piece of one gradient in the bucket that the rank adds to an fp32 part."""
    kept: int = 0
    """Elements of earlier gradients larger than the bucket that stay where autograd made them."""


class Reductions(NamedTuple):
    """The reductions of a backward pass, while its gradients are made."""

    highest: tuple[Reduction, ...]
    """The reductions that no other one exceeds in every respect."""
    kept: int
    """Elements that `Reduction.kept` comes to in the whole pass."""
    holds_from: float
    """The share of layers that are left when the rank first has gradients of its own part; `AFTER`
    if that is after all layers, `NEVER` if it is not before the last gradient comes."""
    last_layer: float
    """The share of layers that are left in the last one, whose gradients come first."""


AFTER: Final = -0.5
NEVER: Final = -1.0


@cached(1024)
def reductions(
    workload: Workload,
    bucket: int,
    own: Partition,
    ranks: int = 1,
    *,
    blocks: bool = False,
    apart: bool = False,
    keeps: Keeps = "none",
) -> Reductions:
    """The reductions of a backward pass.

    `bucket`: elements of the reduce bucket; `own`: the part of the trained elements whose gradients
    the rank of interest keeps; `ranks`: the number over which stage 3 splits each gradient;
    `blocks`: whether it gathers blocks of experts as one; `apart`: whether that rank adds each of
    its pieces to an fp32 part separately; `keeps`: the gradients that stay if they are larger than
    the bucket.
    """
    tensors = trained_tensors(workload)
    own = own._replace(apart=apart)
    made = partial(_reductions, tensors, bucket, own, ranks, blocks=blocks, keeps=keeps)
    return _REDUCTIONS.of((tensors,), (bucket, own, ranks, blocks, keeps), made)


_REDUCTIONS: Final = BoundedCache[Reductions](
    "compiler.analyses.memory.reductions.reductions", 1024
)


def _reductions(
    tensors: tuple[Tensor, ...],
    bucket: int,
    own: Partition,
    ranks: int,
    *,
    blocks: bool,
    keeps: Keeps,
) -> Reductions:
    arriving = _arriving(tensors)
    gradients = _block_by_block(arriving) if blocks else arriving
    found = tuple(_all(gradients, bucket, own, ranks, keeps=keeps))
    if not found:
        return Reductions((), 0, NEVER, 1.0)
    most = found[-1].kept
    # of layers that are alike, either those before any of these gradients need most or those after
    early, late = (each for each in found if each.kept < most), (e for e in found if e.kept == most)
    alone = found[-1].filled == arriving[-1].elements
    holds_from = _holds_from(found[: -2 if alone else -1])
    layers = len({each.layer for each in tensors} - {None})
    highest = *_highest(early), *_highest(late)
    return Reductions(highest, most, holds_from, 1 - 1 / max(layers, 1))


def _holds_from(before_last: Iterable[Reduction]) -> float:
    brings = next((each for each in before_last if each.brings), None)
    if brings is None:
        return NEVER
    return brings.left if brings.inside or brings.left == 1 else AFTER


def _highest(reductions: Iterable[Reduction]) -> list[Reduction]:
    found: list[Reduction] = []
    for each in reductions:
        if not any(_covers(other, each) for other in found):
            found = [other for other in found if not _covers(each, other)]
            found.append(each)
    return found


@cached(1024)
def reductions_at_end(workload: Workload, bucket: int, own: Partition) -> tuple[Reduction, ...]:
    """The reductions of stage 1 after all gradients are made, in the order of the model.

    A gradient that is larger than the bucket stays where it is, unless the rank keeps it in its own
    buffer (deepspeed 0.19.8 `runtime/zero/stage_1_and_2.py`, `reduce_gradients` and
    `reduce_ipg_grads`, which clears gradients at stage 2 only).
    """
    found, begins = [], 0
    tensors = trained_tensors(workload)
    for each in tensors:
        if not each.idle:
            found.append(Gradient(each.elements, begins, 0.0, each))
        begins += each.elements
    return tuple(_all(found, bucket, own, 1, total=begins, keeps="others"))


def _covers(one: Reduction, other: Reduction) -> bool:
    """Whether one reduction needs at least as much as the other in every respect."""
    return (
        one.copied + one.apart >= other.copied + other.apart
        and one.left >= other.left
        and one.inside >= other.inside
        and one.is_whole >= other.is_whole
        and one.held >= other.held
        and one.held + one.brings >= other.held + other.brings
        and one.own >= other.own
    )


def _arriving(tensors: tuple[Tensor, ...]) -> list[Gradient]:
    """Gradients in the order in which they are made, without those that never are."""
    return [each for each in in_backward_order(tensors) if not each.tensor.idle]


def _block_by_block(gradients: Iterable[Gradient]) -> Iterator[Gradient]:
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
    gradients: Iterable[Gradient],
    bucket: int,
    own: Partition,
    ranks: int,
    total: int = 0,
    keeps: Keeps = "none",
) -> Iterator[Reduction]:
    """Every reduction; `total`: of all elements, if gradients come in the model's order."""
    inside: list[Gradient] = []
    filled, number, kept, reached, held = 0, 0, 0, False, False
    for each in gradients:
        if filled and filled + each.elements > bucket:
            number += 1
            one = _reduction(number, inside, bucket, own, ranks, each, held=held)
            later = total - each.begins - each.elements if total else one.later
            yield one._replace(later=later, brings=reached and not held, kept=kept)
            kept += filled * stays(inside[0], bucket, own, keeps)  # a large one fills it alone
            held, filled, inside = held or reached, 0, []
        filled += each.elements
        inside.append(each)
        reached = reached or own.has(each)
    if inside:
        last = _reduction(number + 1, inside, bucket, own, ranks, None, held=held)
        yield last._replace(brings=reached and not held, kept=kept)


def _reduction(
    number: int,
    inside: list[Gradient],
    bucket: int,
    own: Partition,
    ranks: int,
    coming: Gradient | None,
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


def _copied(inside: list[Gradient], bucket: int, own: Partition) -> Copied:
    """What is copied of a bucket in groups, and the largest piece of the rank of interest."""
    stretches = ((each.begins, each.begins + each.elements) for each in inside if each.elements)
    return copied(stretches, bucket, own.part, own.rank if own.apart else None)
