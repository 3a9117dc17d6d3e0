"""Activations of diffusion transformers with measured blocks, in bytes per sample."""

from collections.abc import Sequence
from functools import partial
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
from tunec.compiler.analyses.memory.modules import is_in_feed_forward
from tunec.compiler.analyses.memory.segments import SegmentedLayers
from tunec.compiler.analyses.memory.workload import Workload
from tunec.schemas.models.architecture import Module, Stack
from tunec.schemas.models.denoiser import BlockBytes, Denoiser, highest
from tunec.schemas.models.layer_measures import ALONE

_EAGER = " eager"


class Tokens(NamedTuple):
    """The numbers of tokens of one sample in a diffusion transformer."""

    image: int
    text: int


class _Kind(NamedTuple):
    """Bytes that blocks of one kind keep of one sample."""

    bytes: BlockBytes
    layers: int
    saved: float
    inputs: float
    adapters: float
    """The part of `saved` that adapters keep."""
    whole: bool
    """Whether these blocks keep everything although other blocks are recomputed."""


def rows(denoiser: Denoiser, module: Module, tokens: Tokens) -> float:
    """The number of rows of one sample that a module multiplies."""
    found = denoiser.rows.get(module.path)
    return found.at(*tokens) if found is not None else sum(tokens)


def block_activations(
    workload: Workload, run: Pass, widths: Arithmetic, tokens: Tokens
) -> Activations:
    """Activations of a denoiser whose blocks are measured."""
    denoiser = workload.architecture.denoiser or Denoiser(0, {}, ())
    kinds = _kinds(workload, run, widths, tokens)
    again = [each for each in kinds if not each.whole]
    product = _product(workload, widths, denoiser, tokens)
    inner = _inner(workload, widths, denoiser, tokens)
    on_their_way = [max(_working(e.bytes, run, tokens, product - e.adapters), inner) for e in again]
    held, split = _layers(again, on_their_way, run)
    around = _around(workload, widths, run, tokens)
    around += sum(each.saved * each.layers for each in kinds if each.whole)
    outside = {"denoiser outside of blocks": around / run.sequence_parallel}
    others, name = beside(held, split), named("denoiser", split)
    layer = held.most + held.working
    alone = denoiser.lists and split.segments == sum(each.layers for each in again)
    last = _last(again, on_their_way) / run.sequence_parallel if alone else at_last(held, split)
    forward = max(_forward(each.bytes, tokens, product) for each in kinds)
    expanding = max(_expanding(each, run, tokens, product) for each in again)
    return Activations(
        kept={**kept("denoiser", held, split, offload=run.offload, transit=1), **outside},
        last_layer={name: last},
        first_layer={name: layer + held.inputs, **outside},
        one_layer={name: held.most + held.inputs},
        forward={"denoiser forward pass": forward / run.sequence_parallel},
        expanding={name: expanding / run.sequence_parallel},
        first_segment={name: layer + held.inputs + others, **outside} if others else {},
        moved=(held.inputs, split.segments) if run.offload else (0.0, 0),
    )


def _kinds(workload: Workload, run: Pass, widths: Arithmetic, tokens: Tokens) -> list[_Kind]:
    """The kinds of blocks in their order; where none would be recomputed, all are."""
    model = workload.architecture
    lists = (model.denoiser.lists if model.denoiser else ()) or ("",) * len(model.stacks)
    some = run.checkpointed and not all(each.is_kept for each in model.stacks)
    found = []
    for stack, path in zip(model.stacks, lists, strict=True):
        own = _adapters(workload, run, widths, tokens, path)
        block = _found(stack, _way(widths, run))
        saved = highest(_trained(block, stack, workload, widths, run).saved, *tokens) + own
        inputs = highest(block.inputs, *tokens)
        found.append(_Kind(block, stack.layers, saved, inputs, own, some and stack.is_kept))
    return found


def _layers(
    again: Sequence[_Kind], on_their_way: Sequence[float], run: Pass
) -> tuple[Layers, SegmentedLayers]:
    """The memory of blocks that are treated alike, and how many are recomputed or kept."""
    layers = sum(each.layers for each in again)
    mean = sum(each.saved * each.layers for each in again) / layers
    waiting = sum(each.inputs * each.layers for each in again) / layers
    sizes = (max(each.saved for each in again), mean, max(on_their_way), waiting)
    return Layers(*(size / run.sequence_parallel for size in sizes)), run.split(layers)


def _last(kinds: Sequence[_Kind], on_their_way: Sequence[float]) -> float:
    """Bytes besides all inputs while blocks that are recomputed one by one are differentiated.

    Each kind needs the most at its last block, when the inputs of the blocks behind it are freed.
    """
    found, behind = 0.0, 0.0
    for each, working in reversed(list(zip(kinds, on_their_way, strict=True))):
        found = max(found, each.saved + working - behind)
        behind += each.inputs * each.layers
    return found


def _way(widths: Arithmetic, run: Pass) -> str:
    """The name of the arithmetic in the measures of blocks, whose attention is always fused."""
    return widths.way.removesuffix(_EAGER) + ALONE * run.alone


def _found(stack: Stack, way: str) -> BlockBytes:
    """The measure for a way of computing; if there is none for one sample, that for several."""
    known = {each.way: each for each in stack.blocks}
    return known.get(way) or known[way.removesuffix(ALONE)]


def _trained(
    found: BlockBytes, stack: Stack, workload: Workload, widths: Arithmetic, run: Pass
) -> BlockBytes:
    """Bytes that a block keeps; with adapters on its scales and gates, as many as if fully trained.

    Scale and gate then get gradients, which need the tensors that they multiply.
    """
    if widths.trained or not _is_modulated(workload):
        return found
    way = _way(widths, run).replace("frozen", "trained").replace(" packed", "")
    return _found(stack, way)


def _is_modulated(workload: Workload) -> bool:
    """Whether an adapter in a block works on one row per sample, which is the condition's row."""
    denoiser = workload.architecture.denoiser
    adapted = (module for module in workload.adapted if "{}" in module.path)
    found = (denoiser.rows.get(module.path) for module in adapted) if denoiser else ()
    return any(each is not None and not (each.image or each.text) for each in found)


def _working(found: BlockBytes, run: Pass, tokens: Tokens, product: float) -> float:
    """Bytes of temporary gradients while one block is differentiated.

    A recomputed block runs forward again while the gradient of its output waits. If blocks are
    kept, the last block may have needed more in the forward pass, at a product with an adapter.
    `product` excludes the tensors that adapters keep in a block, which do not exist yet.
    """
    working, inputs = highest(found.working, *tokens), highest(found.inputs, *tokens)
    saved = highest(found.saved, *tokens)
    if not run.checkpointed:
        return max(working, inputs + product - saved)
    return max(working, _forward(found, tokens, product) - saved + inputs)


def _expanding(kind: _Kind, run: Pass, tokens: Tokens, product: float) -> float:
    """Bytes beside a weight that is expanded in a forward pass: all that a recomputed block has."""
    found = kind.bytes
    forward = _forward(found, tokens, product) - highest(found.saved, *tokens)
    return forward + run.checkpointed * (kind.saved + highest(found.inputs, *tokens))


def _inner(workload: Workload, widths: Arithmetic, denoiser: Denoiser, tokens: Tokens) -> float:
    """Bytes of one sample of both gradients around the activation of a plain feed-forward.

    They come before anything that shows the trace which block it is in, so the measure of some
    classes begins after them (PixArt; traced).
    """
    linear = [m for m in workload.architecture.modules if m.kind == "linear" and "{}" in m.path]
    read = {each.shape[-1] for each in linear if is_in_feed_forward(each)}
    plain = (m for m in linear if is_in_feed_forward(m) and m.shape[0] in read - {m.shape[-1]})
    sizes = (rows(denoiser, each, tokens) * each.shape[0] for each in plain)
    return 2 * widths.compute * max(sizes, default=0.0)


def _forward(found: BlockBytes, tokens: Tokens, product: float) -> float:
    """The most bytes that a block's forward pass takes, without adapters or at an adapter."""
    return max(highest(found.forward, *tokens), highest(found.inputs, *tokens) + product)


def _product(workload: Workload, widths: Arithmetic, denoiser: Denoiser, tokens: Tokens) -> float:
    """Bytes of one sample at the widest product with an adapter in a block.

    They hold the base's result, the second product's result and its scaled copy, beside the input
    in the adapter's dtype (peft 0.21.2 `tuners/lora/layer.py`, `Linear.forward`; traced).
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
    workload: Workload, run: Pass, widths: Arithmetic, tokens: Tokens, path: str
) -> float:
    """Bytes of one sample that the adapters of a block in a list keep, and products at ZeRO-3."""
    model = workload.architecture
    denoiser = model.denoiser or Denoiser(0, {}, ())
    layers = sum(each.layers for each in model.stacks)
    alike = sum(
        s.layers for s, own in zip(model.stacks, denoiser.lists, strict=False) if own == path
    )
    own = [each for each in workload.adapted if _is_in(each, path)]
    saved = _adapters_saved(workload, own, widths, tokens, several=not run.alone)
    size = (saved + _normed(workload, own, widths, tokens)) / (alike or layers)
    if run.keeps_inputs and not widths.trained:
        number = partial(rows, denoiser, tokens=tokens)
        every = inputs_kept(workload, "denoiser", widths, number, several=not run.alone)
        size += every / layers
    return size


def _is_in(module: Module, path: str) -> bool:
    """Whether a module is in a list of blocks; always true if the model's card gives no path."""
    return not path or module.path.startswith(f"{path}.")


def _adapters_saved(
    workload: Workload,
    adapted: Sequence[Module],
    widths: Arithmetic,
    tokens: Tokens,
    *,
    several: bool,
) -> float:
    denoiser = workload.architecture.denoiser or Denoiser(0, {}, ())
    number = partial(rows, denoiser, tokens=tokens)
    return adapters_saved(workload, adapted, widths, number, several=several)


def _normed(
    workload: Workload, adapted: Sequence[Module], widths: Arithmetic, tokens: Tokens
) -> float:
    """Bytes of one sample that norms of the text's keys keep because adapters give them gradients.

    A block attends to a text that no trained module has produced. Without adapters, the text's keys
    need no gradient, and their norm keeps nothing (Wan, LTX; traced).
    """
    if widths.trained:
        return 0.0
    denoiser = workload.architecture.denoiser or Denoiser(0, {}, ())
    norms = {each.path for each in workload.architecture.modules if each.kind == "norm"}
    return sum(
        each.copies * rows(denoiser, each, tokens) * widths.compute * each.shape[0]
        for each in adapted
        if each.path.endswith("attn2.to_k") and each.path.replace("to_k", "norm_k") in norms
    )


def _around(workload: Workload, widths: Arithmetic, run: Pass, tokens: Tokens) -> float:
    """Bytes of one sample that are kept outside of the blocks, including adapters there."""
    model = workload.architecture
    known = {each.way: each for each in model.denoiser.around} if model.denoiser else {}
    way = _way(widths, run)
    found = known.get(way) or known.get(way.removesuffix(ALONE))
    lists = (model.denoiser.lists if model.denoiser else ()) or ("",)
    outer = [m for m in workload.adapted if not any(_is_in(m, each) for each in lists)]
    size = highest(found.saved, *tokens) if found is not None else 0.0
    return size + _adapters_saved(workload, outer, widths, tokens, several=not run.alone)
