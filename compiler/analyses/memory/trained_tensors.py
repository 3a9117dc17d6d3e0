"""The trained tensors of a model in its own order, and in that in which they get gradients."""

from collections.abc import Iterable, Iterator
from itertools import accumulate, groupby
from math import prod
from typing import Final, NamedTuple

from tunec.compiler.analyses.memory.counts import expert_blocks
from tunec.compiler.analyses.memory.modules import adapter_shapes
from tunec.compiler.analyses.memory.workload import Workload
from tunec.schemas.caches import BoundedCache, cached
from tunec.schemas.models.architecture import Module


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
    "compiler.analyses.memory.trained_tensors.tensors", 64
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


class Gradient(NamedTuple):
    """The gradient of one trained tensor."""

    elements: int
    begins: int
    """The start of the parameter among all trained elements."""
    left: float
    tensor: Tensor
    beside: int = 0
    """Elements of other gradients of its block that exist too, and are not yet moved."""


def in_backward_order(tensors: tuple[Tensor, ...]) -> tuple[Gradient, ...]:
    """Gradients in their order, also those of tensors that get none."""
    return _GRADIENTS.of((tensors,), None, lambda: tuple(_in_backward_order(tensors)))


_GRADIENTS: Final = BoundedCache[tuple[Gradient, ...]](
    "compiler.analyses.memory.trained_tensors.gradients", 64
)


def _in_backward_order(tensors: tuple[Tensor, ...]) -> Iterator[Gradient]:
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
        yield Gradient(each.elements, begin, left, each)
