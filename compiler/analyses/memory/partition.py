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
from typing import Final, NamedTuple

from tunec.compiler.analyses.memory.counts import expert_blocks
from tunec.compiler.analyses.memory.modules import adapter_shapes
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.ir.caches import cached
from tunec.compiler.ir.kept import Kept
from tunec.schemas.models.architecture import Module


class Partition(NamedTuple):
    """The part of one rank, in elements."""

    rank: int
    elements: int
    """Of all parameters that it owns a piece of."""
    piece: int
    """Of the largest piece that it owns."""
    ends: int = 0
    """Where the part ends among all trained elements."""
    part: int = 0
    """Elements of each rank's part."""
    apart: bool = False
    """Whether the rank adds each of its pieces to an fp32 part by itself."""


NO_PARTITION = Partition(0, 0, 0)


class Tensor(NamedTuple):
    """One trained tensor, and where in the model it lies."""

    elements: int
    layer: tuple[str, int] | None
    """The layer of the language model or the denoiser that it belongs to."""
    ends_feed_forward: bool
    """Whether it reads the inner activations, so that its gradient is the first of its layer."""
    in_block: bool = False
    """Whether it lies in the module that holds the layer's experts."""
    idle: bool = False
    """Whether no gradient comes for it."""


@cached(2048)
def largest_partition(workload: Workload, ranks: int) -> Partition:
    """Find the rank that needs most in its step.

    That is 2 bytes an element of its buffer, and the larger of 8 of its largest piece (the fp64
    copy for the norm) and 6 of its part (flattened, and made fp32).
    """
    tensors = trained_tensors(workload)
    return _PARTITIONS.of((tensors,), ranks, lambda: _largest(tensors, ranks))


_PARTITIONS: Final = Kept[Partition](2048)


def _largest(tensors: tuple[Tensor, ...], ranks: int) -> Partition:
    ends = list(accumulate(tensor.elements for tensor in tensors))
    if not ends or ends[-1] == 0:  # adapters of a pinned rank 0 have no elements
        return NO_PARTITION
    part = -(-ends[-1] // ranks)
    found = (part_of(ends, rank, part) for rank in range(-(-ends[-1] // part)))
    return max(found, key=lambda each: 2 * each.elements + max(8 * each.piece, 6 * part))


def part_of(ends: list[int], rank: int, part: int) -> Partition:
    """One rank's part of tensors that end where `ends` says; `part`: elements of each part."""
    begin, end = rank * part, min((rank + 1) * part, ends[-1])
    first, last = bisect_right(ends, begin), bisect_left(ends, end)
    edges = [begin, *ends[first:last], end]
    piece = max(high - low for low, high in pairwise(edges))
    return Partition(rank, ends[last] - (ends[first - 1] if first else 0), piece, end, part)


def trained_sizes(workload: Workload) -> Iterator[int]:
    """Elements of every trained tensor, in the order in which the model gives its parameters."""
    return (tensor.elements for tensor in trained_tensors(workload))


@lru_cache(maxsize=64)
def trained_tensors(workload: Workload) -> tuple[Tensor, ...]:
    """Every trained tensor, in the order in which the model gives its parameters.

    The same object for workloads that differ in nothing that bears on it.
    """
    idle = (None, *workload.idle_adapted, None, *workload.idle)
    told = (workload.architecture, *workload.adapted, None, *workload.trained, *idle)
    rank = workload.adapter.rank
    return _TENSORS.of(told, rank, lambda: tuple(_tensors(workload, _inner_widths(workload))))


_TENSORS: Final = Kept[tuple[Tensor, ...]](64)


def _tensors(workload: Workload, inner: frozenset[int]) -> Iterator[Tensor]:
    blocks = expert_blocks(workload.architecture)
    idle = {id(module) for module in (*workload.idle_adapted, *workload.idle)}
    for module, layer in in_order(workload.adapted):
        place = layer, module.shape[-1] in inner, module.path.startswith(blocks), id(module) in idle
        for shape in adapter_shapes(module, workload.adapter.rank):
            yield Tensor(prod(shape), *place)
    for module, layer in in_order(workload.trained):
        place = layer, module.shape[-1] in inner, module.path.startswith(blocks), id(module) in idle
        yield Tensor(prod(module.shape), *place)
        if module.bias:
            yield Tensor(module.bias, *place)


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
            inside = place and module.part in ("text", "denoiser")
            yield module, (path, place[0]) if inside else None
