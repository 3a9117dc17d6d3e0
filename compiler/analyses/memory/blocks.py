"""Diffusion transformers whose blocks were read off their class, in bytes a sample."""

from typing import NamedTuple

from tunec.compiler.analyses.memory.activations import (
    Activations,
    Layers,
    Pass,
    at_last,
    beside,
    kept,
    named,
)
from tunec.compiler.analyses.memory.arithmetic import Arithmetic
from tunec.compiler.analyses.memory.lora import adapters_saved, inputs_kept
from tunec.compiler.analyses.memory.workload import Workload
from tunec.schemas.models.architecture import Architecture, Module, Stack
from tunec.schemas.models.denoiser import ALONE, BlockBytes, Denoiser, highest

_EAGER = " eager"


class Tokens(NamedTuple):
    """What one sample has in a diffusion transformer."""

    image: int
    text: int


def rows(denoiser: Denoiser, module: Module, tokens: Tokens) -> float:
    """Rows of one sample that a module multiplies."""
    found = denoiser.rows.get(module.path)
    return found.at(*tokens) if found is not None else sum(tokens)


def block_activations(
    workload: Workload, run: Pass, widths: Arithmetic, tokens: Tokens
) -> Activations:
    """Activations of a denoiser whose blocks are measured."""
    model = workload.architecture
    stacks, denoiser = model.stacks, model.denoiser or Denoiser(0, {}, ())
    layers = sum(stack.layers for stack in stacks)
    blocks = [_found(stack, _way(widths, run)) for stack in stacks]
    beside_ = _adapters(workload, run, widths, denoiser, tokens) / layers
    saved = [
        highest(_trained(each, stack, workload, widths, run).saved, *tokens)
        for each, stack in zip(blocks, stacks, strict=True)
    ]
    product = _product(workload, widths, denoiser, tokens)
    working = max(_working(each, run, tokens, product - beside_) for each in blocks)
    inputs = [highest(each.inputs, *tokens) for each in blocks]
    total = sum((size + beside_) * stack.layers for size, stack in zip(saved, stacks, strict=True))
    waiting = sum(size * stack.layers for size, stack in zip(inputs, stacks, strict=True)) / layers
    share = run.sequence_parallel
    sizes = (max(saved) + beside_, total / layers, working, waiting)
    held, split = Layers(*(size / share for size in sizes)), run.split(layers)
    outside = {"denoiser outside of blocks": _around(model, widths, run, tokens) / share}
    others, name = beside(held, split), named("denoiser", split)
    layer = held.most + held.working
    forward = max(_forward(each, tokens, product) for each in blocks) / share
    return Activations(
        kept={**kept("denoiser", held, split, offload=run.offload, transit=1), **outside},
        last_layer={name: at_last(held, split)},
        first_layer={name: layer + held.inputs, **outside},
        one_layer={name: held.most + held.inputs},
        forward={"denoiser forward pass": forward},
        first_segment={name: layer + held.inputs + others, **outside} if others else {},
        moved=(held.inputs, split.segments) if run.offload else (0.0, 0),
    )


def _way(widths: Arithmetic, run: Pass) -> str:
    """The way of computing, as blocks know it: their attention is fused."""
    return widths.way.removesuffix(_EAGER) + ALONE * run.alone


def _found(stack: Stack, way: str) -> BlockBytes:
    """The measure of a way, that of several samples where one takes as much as each of them."""
    known = {each.way: each for each in stack.blocks}
    return known.get(way) or known[way.removesuffix(ALONE)]


def _trained(
    found: BlockBytes, stack: Stack, workload: Workload, widths: Arithmetic, run: Pass
) -> BlockBytes:
    """What a block keeps if adapters change its scales and gates: as much as trained in full.

    Scale and gate then get gradients, which need what they multiply.
    """
    if widths.trained or not _is_modulated(workload):
        return found
    way = _way(widths, run).replace("frozen", "trained").replace(" packed", "")
    return _found(stack, way)


def _is_modulated(workload: Workload) -> bool:
    """Whether an adapter in a block works on one row a sample: the condition's."""
    denoiser = workload.architecture.denoiser
    adapted = (module for module in workload.adapted if "{}" in module.path)
    found = (denoiser.rows.get(module.path) for module in adapted) if denoiser else ()
    return any(each is not None and not (each.image or each.text) for each in found)


def _working(found: BlockBytes, run: Pass, tokens: Tokens, product: float) -> float:
    """Bytes of gradients on their way while one block is differentiated.

    Recomputed, it runs forward again while the gradient of its output waits; kept, the last block
    may have taken more in the forward pass, at a product with an adapter. `product` is less what
    adapters keep in a block, which is not there yet.
    """
    working, inputs = highest(found.working, *tokens), highest(found.inputs, *tokens)
    saved = highest(found.saved, *tokens)
    if not run.checkpointed:
        return max(working, inputs + product - saved)
    return max(working, _forward(found, tokens, product) - saved + inputs)


def _forward(found: BlockBytes, tokens: Tokens, product: float) -> float:
    """The most that the forward pass of one block takes, without adapters or at one of them."""
    return max(highest(found.forward, *tokens), highest(found.inputs, *tokens) + product)


def _product(workload: Workload, widths: Arithmetic, denoiser: Denoiser, tokens: Tokens) -> float:
    """Bytes of one sample at the widest product in a block that has an adapter.

    The base's own result is there, what the second product gives, and that scaled, beside the
    input in the adapter's dtype (peft 0.21.2 `tuners/lora/layer.py`, `Linear.forward`; traced).
    """
    base, own = widths.answer, widths.adapter_product
    cast = own if own != base else 0
    return max(
        (
            rows(denoiser, each, tokens)
            * (each.shape[0] * (base + 2 * own) + each.shape[-1] * cast)
            for each in workload.adapted
            if "{}" in each.path and each.kind == "linear"
        ),
        default=0.0,
    )


def _adapters(
    workload: Workload, run: Pass, widths: Arithmetic, denoiser: Denoiser, tokens: Tokens
) -> float:
    """Bytes of one sample that all adapters keep, and frozen products at ZeRO-3."""

    def count(module: Module) -> float:
        return rows(denoiser, module, tokens)

    size = adapters_saved(workload, workload.adapted, widths, count)
    if run.keeps_inputs and not widths.trained:
        size += inputs_kept(workload, "denoiser", widths, count)
    return size


def _around(model: Architecture, widths: Arithmetic, run: Pass, tokens: Tokens) -> float:
    """Bytes of one sample that are kept outside of the blocks."""
    known = {each.way: each for each in model.denoiser.around} if model.denoiser else {}
    way = _way(widths, run)
    found = known.get(way) or known.get(way.removesuffix(ALONE))
    return highest(found.saved, *tokens) if found is not None else 0.0
