"""The tensors that a model keeps between forward and backward, in bytes per sample.

Layers are recomputed in segments, each from the input of its first layer. The layers in the gap
after a segment keep all of their activations.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Literal, NamedTuple

from msgspec import Struct, field

from tunec.compiler.analyses.memory.arithmetic import Arithmetic
from tunec.compiler.analyses.memory.attention import (
    attention_saved,
    exchanged_saved,
    is_windowed,
    mask_saved,
)
from tunec.compiler.analyses.memory.experts import ExpertsPass, experts_pass
from tunec.compiler.analyses.memory.layer_measures import (
    common,
    feed_forward_kept,
    passing,
    saved,
    working_of,
)
from tunec.compiler.analyses.memory.layers import (
    dropped_saved,
    expanding_working,
    forward_working,
    inputs_waiting,
    norm_saved,
    norm_working,
    reentrant_working,
)
from tunec.compiler.analyses.memory.lora import adapters_saved, inputs_kept
from tunec.compiler.analyses.memory.modules import (
    is_after_attention,
    is_in_encoder,
    is_in_feed_forward,
    norms_after,
)
from tunec.compiler.analyses.memory.padded_texts import filled, rows_of
from tunec.compiler.analyses.memory.segments import SegmentedLayers, recomputed
from tunec.compiler.analyses.memory.timeline import Sizes
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.ir.slots import States
from tunec.schemas.models.architecture import Architecture, Module, Part, Stack

Half = Literal["", "encoder", "decoder"]
"""One half of a model whose encoder reads no text; "" means both halves, or a model without
halves."""

IN_TRANSIT: Final = 4
"""Inputs of layers that are on the device though they wait on the host, all together.

TRL's context holds what it last moved until five more tensors are saved, of which a recomputed
layer has two; an autograd node that it remembers, with what was brought back for it; and tensors
that two operations saved, as the final norm's fp32 copy, which is two inputs (trl 1.16
`models/activation_offloading.py`, `max_fwd_stash_size`, `curr_autograd_node`,
`storage_to_tensor_id`). Traced: four with adapters, up to three without."""


class Layers(NamedTuple):
    """The memory that the layers of a part hold, in bytes per sample."""

    most: float
    """The activations that the largest layer keeps."""
    mean: float
    """The activations that a layer keeps on average."""
    working: float
    """The gradients that exist temporarily while a layer is differentiated."""
    inputs: float
    """The input of a layer."""


def kept(
    part: str, layers: Layers, split: SegmentedLayers, *, offload: bool, transit: int = IN_TRANSIT
) -> Sizes:
    """Bytes kept for the backward pass; `transit`: offloaded inputs still on the device."""
    here = min(split.segments, transit) if offload else split.segments
    name = "inputs in transit" if offload else "layer inputs"
    terms = {f"{part} {name}": layers.inputs * here} if here else {}
    if split.whole:
        terms[f"{part} activations"] = layers.mean * split.whole
    return terms


def named(part: str, split: SegmentedLayers) -> str:
    """The name of a layer's working memory."""
    return f"{part} recomputed layer" if split.segments else f"{part} layer gradients"


def at_last(layers: Layers, split: SegmentedLayers) -> float:
    """Bytes besides the kept ones while the last layer, or a late segment, is differentiated.

    When the pass reaches a segment, the layers behind the segment are done. The last segment may be
    shorter than the others: then the segment before it holds more.
    """
    if not split.segments:
        return layers.working
    last = split.last * layers.most - split.tail * layers.mean
    before = split.first * layers.most - (split.tail + split.gap) * layers.mean - layers.inputs
    return layers.working + max(last, before if split.segments > 1 else 0.0, 0.0)


def beside(layers: Layers, split: SegmentedLayers) -> float:
    """Bytes of a segment's other layers, recomputed before its last layer is differentiated."""
    return (split.first - 1) * layers.most if split.first > 1 else 0.0


class Pass(Struct, frozen=True):
    """The settings of one forward and backward pass."""

    states: States
    checkpointed: bool
    padded: bool
    """Whether attention has a mask, as where samples of different lengths share a micro batch."""
    sequence_parallel: int
    gathered: int = 1
    """The number of ranks whose evaluation logits are collected on each device."""
    segment: int = 1
    """The number of layers that are recomputed together, if layers are recomputed."""
    gap: int = 0
    """The number of layers after each segment that keep all of their activations."""
    offload: bool = False
    """Whether the kept layer inputs are offloaded to host RAM."""
    reentrant: bool = False
    """Whether recomputation uses torch's reentrant variant."""
    retains: bool = False
    """Whether FSDP keeps the inputs of layers and their gradients until the end of the pass."""
    short: bool = False
    """Whether a micro batch has fewer tokens than a tile of the loss has rows."""
    keeps_inputs: bool = False
    """Whether frozen linear layers keep their inputs, as they do under ZeRO-3."""
    alone: bool = False
    """Whether a micro batch consists of one sample."""
    together: int = 1
    """The number of samples whose pictures are one sequence of the tower."""
    nested: bool = False
    """Whether attention is recomputed separately inside its layer, with its input kept."""
    head: Literal["unit", "loss", "host"] = "unit"
    """What gathers a sharded output projection for the loss (`terms.fsdp_ends.head_of`)."""
    casts_norm: bool = False
    """Whether FSDP casts what the last norm gives (`terms.fsdp_ends.norm_is_in_unit`)."""
    casts_adapters: bool = False
    """Whether autocast meets adapters as they are stored; FSDP gathers them in its own dtype."""

    def split(self, layers: int) -> SegmentedLayers:
        """The division of a number of layers into recomputed and kept ones."""
        return recomputed(layers, self.segment if self.checkpointed else 0, self.gap)


class Activations(Struct, frozen=True):
    """The activations of a pass, in bytes per sample and by name."""

    kept: Sizes
    """Tensors that are kept until the backward pass reaches them."""
    last_layer: Sizes
    """The memory that differentiating the last layer needs besides the kept tensors."""
    first_layer: Sizes
    """All tensors alive while the first layer is differentiated."""
    one_layer: Sizes
    """The tensors that one layer keeps, with its input."""
    forward: Sizes
    """The memory of a forward pass that keeps nothing for a backward pass."""
    begun: Sizes | None = None
    """A layer at the start of its differentiation, with its kept tensors; None: same as the last
    layer."""
    half: Sizes | None = None
    """A layer after its feed-forward is differentiated, with the tensors that its other half keeps;
    None: same as the last layer."""
    expanding: Sizes = field(default_factory=dict)
    """The last layer while one of its products expands a quantized weight, whose bytes are counted
    separately."""
    ending: Sizes = field(default_factory=dict)
    """What the last layer's forward pass needs besides the kept tensors, if layers keep everything:
    casts of adapters at its end, or its measured height."""
    encoder: Sizes = field(default_factory=dict)
    """The encoder's part of `kept`, if an encoder comes before the decoder."""
    ahead: "Activations | None" = None
    """The activations of an encoder that reads no text; the rest of `kept` then belongs to its
    decoder."""
    ended: Sizes = field(default_factory=dict)
    """All tensors alive in a layer when only its first norm is still to be differentiated."""
    first_segment: Sizes = field(default_factory=dict)
    """All tensors alive when a first segment of several layers has been recomputed."""
    moved: tuple[float, int] = (0.0, 0)
    """Bytes of one tensor that is offloaded to the host, and the number of these tensors."""
    experts: ExpertsPass | None = None
    """Moments inside of a layer's experts; None: layers have none."""
    together: tuple[float, float] = (0.0, 0.0)
    """Bytes that all samples of a batch share: those that are kept, and those in the layer that is
    differentiated."""
    leaf: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Bytes of a bias that all samples share and no layer frees, since it gets a gradient; of such
    biases' gradients in the last layers alone; and of biases and gradients in the first ones."""


def part_activations(
    workload: Workload,
    run: Pass,
    part: Part,
    widths: Arithmetic,
    tokens: float,
    keys: float,
    only: Half = "",
) -> Activations:
    """Activations of the layers of one part, in bytes per sample of `tokens` tokens.

    `only` restricts them to one half of a model whose halves process different numbers of tokens.
    """
    stacks = stacks_of(workload.architecture, part, only)
    layers = sum(stack.layers for stack in stacks)
    in_order = _is_in_order(stacks, widths, keys, padded=run.padded)
    model = workload.architecture
    inside, rows = partial(_is_inside, part=part, half=only), partial(rows_of, model, tokens=tokens)
    adapters = _adapters(workload, inside, rows, widths, in_order=in_order) / layers
    if run.keeps_inputs and not widths.trained:
        adapters += _inputs(workload, part, only, rows, widths) / layers
    one = [adapters + _layer_kept(workload, run, part, s, widths, keys) for s in stacks]
    gone = partial(_released, workload, inside, rows, widths, layers)
    how = {"recomputed": run.checkpointed, "padded": run.padded, "alone": run.alone}
    working = working_of(stacks, widths, keys, one, gone, **how)
    begun = working_of(stacks[:1], widths, keys, one[:1], gone, **how) if widths.biased else 0.0
    working += reentrant_working(stacks[0], widths) if run.checkpointed and run.reentrant else 0
    forward = max(forward_working(stack, widths, keys) for stack in stacks)
    expanding = max(expanding_working(stack, widths) for stack in stacks)
    inputs = filled(model, stacks, tokens) * inputs_waiting(stacks, widths, nested=run.nested)
    pairs = [*zip(one, stacks, strict=True)]
    half = max(size - feed_forward_kept(stack, widths) for size, stack in pairs)
    split = run.split(layers)
    total = sum(size * stack.layers for size, stack in pairs)
    total -= _at_beginnings(workload, run, part, stacks, widths, keys)
    held = Layers(*(tokens * size for size in (max(one), total / layers, working, inputs)))
    others, name = beside(held, split), named(part, split)
    halved, layer = tokens * (half + working), held.most + held.working
    again, fresh = split.repeated > 0, split.segments > 0 and not split.tail
    ending = passing(model, stacks, widths, keys, alone=run.alone, recomputed=again)
    first, input_ = one[0] if split.whole else inputs, held.inputs * bool(split.segments)
    experts = experts_pass(stacks[-1], widths, tokens, held.most + input_, name, recomputed=fresh)
    halved = halved if experts is None else experts.ending[name] - input_
    return Activations(
        kept=kept(part, held, split, offload=run.offload),
        last_layer={name: at_last(held, split)},
        first_layer={name: held.inputs + (tokens * (one[0] + begun) if widths.biased else layer)},
        one_layer={name: held.most + held.inputs},
        forward={f"{part} forward pass": tokens * forward},
        begun={name: layer + others},
        ended={name: tokens * norm_working(stacks[0], widths)},
        half={name: halved + others},
        expanding={name: held.most * run.checkpointed + tokens * expanding},
        ending={name: tokens * size for name, size in ending.items()},
        encoder=_encoder(part, widths, tokens * stacks[0].layers * first),
        first_segment={name: layer + held.inputs + others} if others else {},
        moved=(held.inputs, split.segments) if run.offload else (0.0, 0),
        experts=experts,
        together=_together(stacks, widths, tokens, keys, split),
    )


def _is_in_order(stacks: Sequence[Stack], widths: Arithmetic, keys: float, *, padded: bool) -> bool:
    """Whether attention gives its result in token order, as the kernel that takes a mask does."""
    windowed = all(is_windowed(stack, widths, keys) for stack in stacks)
    return not widths.eager and (padded or windowed)


def _together(
    stacks: Sequence[Stack], widths: Arithmetic, tokens: float, keys: float, split: SegmentedLayers
) -> tuple[float, float]:
    """Bytes that all samples of a batch share: in kept layers, and in a recomputed segment."""
    sizes = [tokens * common(stack, widths, keys) for stack in stacks]
    total = sum(size * stack.layers for size, stack in zip(sizes, stacks, strict=True))
    return total * split.whole / split.layers, max(sizes) * max(split.first, 1)


def _kept_beside(stack: Stack, widths: Arithmetic, keys: float, run: Pass) -> float:
    """Bytes per token that one layer's attention keeps for its mask or for sequence parallelism.

    If ranks share a sequence, there is no mask (deepspeed 0.19.8 `ulysses_sp.py`,
    `register_with_transformers`).
    """
    if not stack.attends:
        return 0
    if run.sequence_parallel > 1:
        return exchanged_saved(stack, widths, run.sequence_parallel)
    return mask_saved(stack, widths, keys, padded=run.padded)


def _at_beginnings(
    workload: Workload,
    run: Pass,
    part: Part,
    stacks: Sequence[Stack],
    widths: Arithmetic,
    keys: float,
) -> float:
    """Bytes per token that first layers do not keep; a decoder with cross-attention has its own."""
    if not _begins(workload, run, part):
        return 0.0
    begun = stacks if widths.crosses else stacks[:1]
    return sum(_spared(workload, run, each, widths, keys) for each in begun)


def _inputs(
    workload: Workload, part: Part, only: Half, rows: Callable[[Module], float], widths: Arithmetic
) -> float:
    """Bytes per token of the kept inputs of frozen products in a part, or in one half of a part."""
    if not only:
        return inputs_kept(workload, part, widths)
    inside = partial(_is_inside, part=part, half=only)
    return inputs_kept(workload, part, widths, lambda each: rows(each) * inside(each))


def _begins(workload: Workload, run: Pass, part: Part) -> bool:
    """Whether nothing before a part's first layer is trained, so that its first norm keeps nothing.

    If layers are recomputed, peft makes the embedding's output require a gradient.
    """
    if norms_after(workload.architecture, part):
        return False
    alone = workload.adapter.kind == "lora" and not workload.trained and not run.checkpointed
    return alone and part == "text" and all(each.part == "text" for each in workload.adapted)


def _spared(workload: Workload, run: Pass, first: Stack, widths: Arithmetic, keys: float) -> float:
    """Bytes per token that the first layer does not keep, up to its first adapter."""
    if not all(map(is_after_attention, workload.adapted)):
        return norm_saved(first, widths) * (2 if widths.casts_norms_apart else 1)
    before = attention_saved(first, widths, keys) + _kept_beside(first, widths, keys, run)
    inside = all(map(is_in_feed_forward, workload.adapted))
    return before + norm_saved(first, widths) * (max(first.norms - 1, 2) if inside else 1)


def _encoder(part: Part, widths: Arithmetic, kept: float) -> Sizes:
    return {f"{part} activations of the encoder": kept} if widths.crosses else {}


def _layer_kept(
    workload: Workload, run: Pass, part: Part, stack: Stack, widths: Arithmetic, keys: float
) -> float:
    """Bytes per token that one layer keeps, without adapters."""
    return (
        saved(stack, widths, keys, alone=run.alone)
        + _kept_beside(stack, widths, keys, run)
        + dropped_saved(workload.architecture, part, stack, widths, keys)
    )


def stacks_of(model: Architecture, part: Part, half: Half = "") -> tuple[Stack, ...]:
    """The layers of a part, or of one half: the encoder that reads no text, or the decoder."""
    of_part = (stack for stack in model.stacks if stack.part == part)
    if not half:
        return tuple(of_part)
    return tuple(stack for stack in of_part if bool(stack.positions) == (half == "encoder"))


def _is_inside(module: Module, part: Part, half: Half) -> bool:
    within = not half or is_in_encoder(module) == (half == "encoder")
    return module.part == part and within


def _released(
    workload: Workload,
    inside: Callable[[Module], bool],
    rows: Callable[[Module], float],
    widths: Arithmetic,
    layers: int,
) -> float:
    """Bytes per token that a layer's adapters release before its attention is differentiated."""
    return _adapters(workload, inside, rows, widths, after_attention=True) / layers


def _adapters(
    workload: Workload,
    inside: Callable[[Module], bool],
    rows: Callable[[Module], float],
    widths: Arithmetic,
    *,
    after_attention: bool = False,
    in_order: bool = False,
) -> float:
    """Bytes per token that the adapters of some layers keep, or only those after attention."""
    modules = [module for module in workload.adapted if inside(module)]
    if after_attention:
        modules = [module for module in modules if is_after_attention(module)]
    return adapters_saved(workload, modules, widths, rows, in_order=in_order)
