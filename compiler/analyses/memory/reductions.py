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

The trained parameters lie flat behind each other in the order of the module tree, cut into as many
equal parts as there are ranks. A rank keeps the reduced gradients of its part in a buffer that has
room for every parameter of which it owns any piece, whole (deepspeed 0.19.8
`runtime/zero/stage_1_and_2.py`, `copy_grads_in_partition`: the sum of `numel` over
`params_in_partition`). A part through the embedding of a small model keeps all of it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import accumulate, groupby, pairwise
from math import prod
from typing import Final, NamedTuple

from tunec.compiler.analyses.memory.bucket_groups import Copied, copied
from tunec.compiler.analyses.memory.counts import expert_blocks
from tunec.compiler.analyses.memory.modules import adapter_shapes
from tunec.compiler.analyses.memory.workload import Workload
from tunec.schemas.caches import BoundedCache, cached
from tunec.schemas.models.architecture import Module


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


NO_PARTITION = Partition(0, 0, 0)


class Tensor(NamedTuple):
    """One trained tensor, and its position in the model."""

    elements: int
    layer: tuple[str, int] | None
    """The layer of the language model or the denoiser that it belongs to."""
    ends_feed_forward: bool
    """Whether it reads the inner activations, so that its gradient is the first of its layer."""
    in_block: bool = False
    """Whether it is in the module that holds the layer's experts."""
    idle: bool = False
    """Whether it gets no gradient."""
    tower: tuple[str, int] | None = None
    """The layer of the vision tower that it belongs to."""
    classifies: bool = False
    """Whether it is in a classifier's head, whose gradients come first wherever it stands."""


@cached(2048)
def largest_partition(workload: Workload, ranks: int) -> Partition:
    """Find the rank that needs most memory in its step.

    That is 2 bytes per element of its buffer, and the larger of 8 of its largest piece (the fp64
    copy for the norm) and 6 of its part (flattened, and made fp32).
    """
    tensors = trained_tensors(workload)
    return _PARTITIONS.of((tensors,), ranks, lambda: _largest(tensors, ranks))


_PARTITIONS: Final = BoundedCache[Partition]("compiler.analyses.memory.reductions.partitions", 2048)


def _largest(tensors: tuple[Tensor, ...], ranks: int) -> Partition:
    ends = list(accumulate(tensor.elements for tensor in tensors))
    if not ends or ends[-1] == 0:  # adapters of a pinned rank 0 have no elements
        return NO_PARTITION
    part = -(-ends[-1] // ranks)
    if tensors[0].classifies:  # its buffer is there from the first gradient to the last
        return part_of(ends, 0, part)
    found = (part_of(ends, rank, part) for rank in _differing_ranks(ends, part))
    return max(found, key=lambda each: 2 * each.elements + max(8 * each.piece, 6 * part))


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


def trained_sizes(workload: Workload) -> Iterator[int]:
    """Elements of every trained tensor, in the order in which the model gives its parameters."""
    return (tensor.elements for tensor in trained_tensors(workload))


@cached(64)
def trained_tensors(workload: Workload) -> tuple[Tensor, ...]:
    """Every trained tensor, in the order in which the model gives its parameters.

    Workloads with the same trained tensors get the same object.
    """
    idle = (None, *workload.idle_adapted, None, *workload.idle)
    told = (workload.architecture, *workload.adapted, None, *workload.trained, *idle)
    rank = workload.adapter.rank
    return _TENSORS.of(told, rank, lambda: tuple(_tensors(workload, _inner_widths(workload))))


_TENSORS: Final = BoundedCache[tuple[Tensor, ...]](
    "compiler.analyses.memory.reductions.tensors", 64
)


def _tensors(workload: Workload, inner: frozenset[int]) -> Iterator[Tensor]:
    blocks = expert_blocks(workload.architecture)
    idle = frozenset((*workload.idle_adapted, *workload.idle))
    head = frozenset(workload.architecture.new)
    for module, layer in in_order(workload.adapted):
        placed = _placed(module, layer, inner, blocks)._replace(idle=module in idle)
        for shape in adapter_shapes(workload, module):
            yield placed._replace(elements=prod(shape))
    for module, layer in in_order(workload.trained):
        placed = _placed(module, layer, inner, blocks)._replace(idle=module in idle)
        placed = placed._replace(classifies=module.path in head)
        yield placed._replace(elements=prod(module.shape))
        if module.bias:
            yield placed._replace(elements=module.bias)


def _placed(
    module: Module, layer: tuple[str, int] | None, inner: frozenset[int], blocks: tuple[str, ...]
) -> Tensor:
    """A tensor of a module, without its elements."""
    main = module.part in ("text", "denoiser")
    return Tensor(
        0,
        layer if main else None,
        module.shape[-1] in inner,
        module.path.startswith(blocks),
        tower=layer if module.part == "vision" else None,
    )


def _inner_widths(workload: Workload) -> frozenset[int]:
    widths = set()
    for stack in workload.architecture.stacks:
        widths.add(stack.ffn)
        if stack.experts is not None:
            widths |= {stack.experts.ffn, stack.experts.shared_ffn}
    return frozenset(widths - {0})


def in_order(modules: Iterable[Module]) -> Iterator[tuple[Module, tuple[str, int] | None]]:
    """Each module once for every copy, layer by layer, with its layer."""
    for path, run in groupby(modules, key=lambda module: module.path.partition("{}")[0]):
        copies = [(place[:1], module) for module in run for place in module.places()]
        for place, module in sorted(copies, key=lambda copy: copy[0]):
            yield module, (path, place[0]) if place else None


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


class Reductions(NamedTuple):
    """The reductions of a backward pass, while its gradients are made."""

    highest: tuple[Reduction, ...]
    """The reductions that no other one exceeds in every respect."""
    holds: bool
    """Whether the rank has gradients of its own part before the last reduction."""


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

    `bucket`: elements of the reduce bucket; `own`: the part of the trained elements whose gradients
    the rank of interest keeps; `ranks`: the number over which stage 3 splits each gradient;
    `blocks`: whether it gathers blocks of experts as one; `apart`: whether that rank adds each of
    its pieces to an fp32 part separately.
    """
    tensors = trained_tensors(workload)
    own = own._replace(apart=apart)
    made = partial(_highest, tensors, bucket, own, ranks, blocks=blocks)
    return _REDUCTIONS.of((tensors,), (bucket, own, ranks, blocks), made)


_REDUCTIONS: Final = BoundedCache[Reductions](
    "compiler.analyses.memory.reductions.reductions", 1024
)


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
    """The reductions of stage 1 after all gradients are made, in the order of the model.

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
    """Whether one reduction needs at least as much as the other in every respect."""
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
    """The start of the parameter among all trained elements."""
    left: float
    tensor: Tensor
    beside: int = 0
    """Elements of other gradients of its block that exist too, and are not yet moved."""


def _arriving(tensors: tuple[Tensor, ...]) -> list[_Gradient]:
    """Gradients in the order in which they are made, without those that never are."""
    return [each for each in in_backward_order(tensors) if not each.tensor.idle]


def in_backward_order(tensors: tuple[Tensor, ...]) -> Iterator[_Gradient]:
    """Gradients in their order, also those of tensors that get none."""
    layers = len({each.layer for each in tensors} - {None})
    towers = len({each.tower for each in tensors} - {None})
    seen: set[object] = set()
    inside: set[object] = set()
    begins = accumulate((each.elements for each in tensors), initial=0)
    placed = zip(begins, tensors, strict=False)
    for begin, each in sorted(placed, key=lambda one: (not one[1].classifies, -one[0])):
        seen |= {each.layer} - {None}
        inside |= {each.tower} - {None}
        left = 1 - len(seen) / layers if layers else 0.0
        left = left if left or not inside else -len(inside) / towers
        yield _Gradient(each.elements, begin, left, each)


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
    """Every reduction; `total`: of all elements, if gradients come in the model's order."""
    inside: list[_Gradient] = []
    filled, number, reached, held = 0, 0, False, False
    begins = own.ends - own.part
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


def _copied(inside: list[_Gradient], bucket: int, own: Partition) -> Copied:
    """What is copied of a bucket in groups, and the largest piece of the rank of interest."""
    stretches = ((each.begins, each.begins + each.elements) for each in inside if each.elements)
    return copied(stretches, bucket, own.part, own.rank if own.apart else None)
