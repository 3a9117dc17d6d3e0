"""Operations of a step: for tokens, for layers, and for a UNet at several resolutions."""

from collections.abc import Iterator
from math import prod
from typing import Final, NamedTuple

from msgspec import Struct

from tunec.compiler.analyses.memory import diffusion
from tunec.compiler.analyses.memory.activations import Pass, part_activations
from tunec.compiler.analyses.memory.arithmetic import Arithmetic, arithmetic
from tunec.compiler.analyses.memory.counts import count
from tunec.compiler.analyses.memory.diffusion import (
    attended_tokens,
    denoiser_activations,
    denoiser_tokens,
    image_elements,
)
from tunec.compiler.analyses.memory.text import text_activations, text_tokens
from tunec.compiler.analyses.memory.unet import levels, module_positions
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.ir.slots import States
from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Architecture, Module, Part, Stack

PARTS: Final[tuple[Part, ...]] = ("text", "vision", "projector", "denoiser")
"""The parts that compute in every step."""


@cached(1024)
def part_tokens(workload: Workload, part: Part) -> float:
    """Tokens of one sample in a part; 0 if the model does not have the part."""
    if not any(module.part == part for module in workload.architecture.modules):
        return 0
    data = workload.data
    by_part: dict[Part, int] = {
        "text": text_tokens(workload),
        "vision": data.vision_tokens,
        "projector": data.image_tokens,
        "denoiser": _denoiser(workload),
    }
    return by_part.get(part, 0)


def _denoiser(workload: Workload) -> int:
    """Tokens of a diffusion transformer; elements of the latent's channel for a UNet."""
    if workload.architecture.unet:
        width, height = image_elements(workload)
        return width * height
    return denoiser_tokens(workload) if workload.architecture.kind == "diffusion" else 0


def sample_tokens(workload: Workload) -> float:
    """Tokens of one sample by which throughput is counted: those of the trained model."""
    return part_tokens(workload, "text") or part_tokens(workload, "denoiser")


@cached(1024)
def kept_bytes(workload: Workload, states: States, part: Part) -> float:
    """Bytes of one sample that a part's layers keep without checkpointing.

    Of a denoiser as if nothing were packed: `converted_bytes` has the casts around packed products.
    """
    tokens = part_tokens(workload, part)
    layered = any(stack.part == part for stack in workload.architecture.stacks)
    if not tokens or not (layered or workload.architecture.unet):
        return 0
    run = Pass(states, checkpointed=False, padded=False, sequence_parallel=1)
    if part == "denoiser":
        workload = replace(workload, quantization=replace(workload.quantization, format="none"))
        return sum(denoiser_activations(workload, run).kept.values())
    widths = arithmetic(workload, states, part)
    images = max(workload.data.images, 1) if part == "vision" else 1
    if workload.architecture.source:
        return sum(text_activations(workload, run).kept.values())
    whole = part_activations(workload, run, part, widths, tokens, tokens / images)
    return sum(whole.kept.values()) + tokens * _written(workload, widths, part)


def _written(workload: Workload, widths: Arithmetic, part: Part) -> float:
    """Bytes a token that eager attention gives and nothing frozen keeps, but that are written."""
    if not widths.eager or widths.keeps_inputs:
        return 0.0
    stacks = (each for each in workload.architecture.stacks if each.part == part)
    return sum(widths.compute * s.heads * s.head_dim * s.layers for s in stacks if not s.measured)


def unet_products(workload: Workload) -> float:
    """Weights of products and convolutions, each counted once for each element that uses it."""
    every = levels(workload)
    return sum(
        prod(module.shape) * module.copies * module_positions(module, every)
        for module in workload.architecture.modules
        if module.kind in ("linear", "conv")
    )


def unet_tokens(workload: Workload, module: Module) -> float:
    """Elements of one channel that a module processes."""
    return module_positions(module, levels(workload))


def unet_scores(workload: Workload) -> float:
    """Forward operations of one sample's attention scores, within its level and with the text."""
    return sum(
        4 * at.level.channels * at.positions * (at.positions + at.level.text_tokens) * at.layers
        for at in levels(workload)
    )


class Passes(NamedTuple):
    """An amount in each pass over a model."""

    forward: float = 0
    backward: float = 0
    layers: float = 0
    """The part of the forward pass that is in layers, which checkpointing repeats."""

    def plus(self, other: "Passes") -> "Passes":
        """The sum, pass by pass."""
        return Passes(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, factor: float) -> "Passes":
        """Each pass times a factor."""
        return Passes(*(factor * each for each in self))


class Operations(Struct, frozen=True):
    """Floating point operations for one sample, a multiply-add being two."""

    forward: float
    backward: float
    layers: float
    """The forward pass through the layers alone, which checkpointing repeats."""
    adapters: float
    """Products of adapters, forward and backward together."""
    scores: Passes = Passes()
    """Attention's scores, which are included in the passes above."""
    masked: Passes = Passes()
    """Those of them that a mask keeps from the fastest kernel."""
    elements: Passes = Passes()
    """Elements that products read and write for one sample, without weights."""
    weights: Passes = Passes()
    """Elements of weights that products read or write, whatever the number of samples."""

    def __add__(self, other: "Operations") -> "Operations":
        return Operations(
            self.forward + other.forward,
            self.backward + other.backward,
            self.layers + other.layers,
            self.adapters + other.adapters,
            self.scores.plus(other.scores),
            self.masked.plus(other.masked),
            self.elements.plus(other.elements),
            self.weights.plus(other.weights),
        )


@cached(256)
def operations(workload: Workload) -> Operations:
    """All operations of one sample."""
    total = Operations(0, 0, 0, 0)
    for part in PARTS:
        if part_tokens(workload, part):
            total += part_operations(workload, part)
    return total


def part_operations(workload: Workload, part: Part) -> Operations:
    """Operations of one part.

    A product of n weights takes 2n operations a token forward, 2n for the gradient of its input
    and 2n for that of its weights (Kaplan et al., arXiv 2001.08361, section 2.1): 6n for trained
    weights, 4n for frozen ones that a gradient passes, 2n where none does.
    """
    tokens = part_tokens(workload, part)
    layers = 2 * products(workload, part)
    model = workload.architecture
    is_text = part == "text"
    through = layers + (tokens * 2 * model.vocab * model.hidden if is_text else 0)
    scores, masked = score_operations(workload, part)
    passes, trains = passes_gradient(workload, part), part in count(workload).trained_parts
    back = (1 + trains) * passes
    every = Passes(1, _score_backward(workload) * passes, passes)
    scored = every.times(scores)
    elements, weights = _operands(workload, part)
    ends = tokens * (model.vocab + model.hidden) if is_text else 0
    head = model.vocab * model.hidden if is_text else 0
    return Operations(
        forward=through + scores,
        backward=through * back + scored.backward,
        layers=(layers + scores) * passes,
        adapters=6 * _adapter_products(workload, part),
        scores=scored,
        masked=every.times(masked),
        elements=_each_pass(elements, ends, back, repeats=passes),
        weights=_each_pass(weights, head, back, repeats=passes),
    )


def _each_pass(layers: float, head: float, back: int, *, repeats: bool) -> Passes:
    """An amount of layers and head, in a product forward and `back` products backward."""
    return Passes(layers + head, (layers + head) * back, layers * repeats)


def _operands(workload: Workload, part: Part) -> tuple[float, float]:
    """Elements that one sample's products in the layers read and write, and those of their weights.

    All experts' weights are read, and each token by its active ones.
    """
    every = tuple(operands(workload, part))
    elements = sum(each.read + each.written for each in every)
    return elements, sum(prod(each.module.shape) * each.module.copies for each in every)


class Operands(NamedTuple):
    """Elements of one sample that the products of a module read and write, forward."""

    module: Module
    read: float
    written: float


def operands(workload: Workload, part: Part) -> Iterator[Operands]:
    """The operands of all matrix products in a part's layers."""
    model, share = workload.architecture, active_share(workload.architecture, part)
    for module in model.modules:
        if module.part != part or not multiplies(module) or module.path == model.head:
            continue
        times = module_tokens(workload, module) * module.copies
        times *= share if ".experts" in module.path else 1
        if ".experts" in module.path and len(module.shape) > 2:
            # all experts of a layer in one parameter: experts, out, in
            experts, out, read = module.shape[0], module.shape[1], module.shape[2]
            yield Operands(module, times * experts * read, times * experts * out)
        else:
            yield Operands(module, times * module.shape[1], times * module.shape[0])


def products(workload: Workload, part: Part) -> float:
    """Weights that one sample's tokens meet in a part's layers, each as often as a token meets it.

    The output projection is not counted; a token meets only the active experts.
    """
    if workload.architecture.unet:
        return unet_products(workload)
    share = active_share(workload.architecture, part)
    return sum(
        module_tokens(workload, module)
        * prod(module.shape)
        * module.copies
        * (share if ".experts" in module.path else 1)
        for module in workload.architecture.modules
        if module.part == part and multiplies(module) and module.path != workload.architecture.head
    )


def module_tokens(workload: Workload, module: Module) -> float:
    """Tokens of one sample that a module processes."""
    if module.part == "denoiser":
        if workload.architecture.unet:
            return unet_tokens(workload, module)
        return diffusion.module_tokens(workload, module)
    return module.positions or part_tokens(workload, module.part)


def multiplies(module: Module) -> bool:
    """Whether a module is a matrix product."""
    return module.kind in ("linear", "conv") or ".experts" in module.path


def active_share(model: Architecture, part: Part) -> float:
    """Share of a part's experts that each token uses."""
    for stack in model.stacks:
        if stack.part == part and stack.experts is not None:
            return stack.experts.active / stack.experts.count
    return 1


def score_operations(workload: Workload, part: Part) -> tuple[float, float]:
    """Operations of one sample's attention scores, forward, and those of them behind a mask.

    Queries times keys and scores times values take 2sd operations each for every query and head;
    fused kernels skip the half that a causal mask hides (FlashAttention-2, arXiv 2307.08691, 3.1).
    """
    stacks = [stack for stack in workload.architecture.stacks if stack.part == part]
    if workload.architecture.unet:
        return unet_scores(workload), 0
    tokens = attended_tokens(workload) if part == "denoiser" else part_tokens(workload, part)
    images = max(workload.data.images, 1) if part == "vision" else 1
    across = sum(_across(stack, tokens, workload.architecture.source) for stack in stacks)
    every = [_stack_scores(workload, stack, stack.positions or tokens / images) for stack in stacks]
    masked = images * sum(each for _, each in every)
    return images * (sum(each for each, _ in every) + across) + masked, masked


def _across(stack: Stack, tokens: float, source: int) -> float:
    """Scores of a decoder that attends to what is no text, of as many positions in each sample."""
    reads = source if stack.cross_attention else 0
    return 2 * stack.heads * _score_width(stack) * tokens * reads * stack.layers


def _stack_scores(workload: Workload, stack: Stack, tokens: float) -> tuple[float, float]:
    """Scores of a stack's layers without a mask of their own, and of those with one."""
    fused = workload.attention.implementation != "eager"
    square = 2 * stack.heads * _score_width(stack) * tokens**2
    plain = square * (0.5 if stack.causal and fused else 1)
    is_windowed = stack.window is not None and stack.window < tokens
    windowed = stack.windowed_layers if is_windowed else 0
    if is_masked(workload) and stack.part == "text":
        behind = windowed + (stack.layers - windowed) * workload.uneven
        return plain * (stack.layers - behind), square * behind
    seen = min((stack.window or 0) * (1 if stack.causal else 2), tokens)
    return plain * (stack.layers - windowed) + square * seen / tokens * windowed, 0


def is_masked(workload: Workload) -> bool:
    """Whether windows and padding are masks, which a fused kernel reads.

    Of torch's kernels FlashAttention takes no mask, so that another one runs, which computes all
    scores (torch 2.13 ATen/native/transformers/sdp_utils_cpp.h, `check_for_attn_mask`).
    transformers gives a mask where a text is padded or longer than the window (5.23
    masking_utils.py, `_ignore_causal_mask_sdpa`, with other names since 4.40). flash-attn removes
    padding and knows windows; Unsloth has kernels of its own.
    """
    return workload.attention.implementation == "sdpa" and workload.version("unsloth") is None


def _score_width(stack: Stack) -> int:
    """Combined width of a head's keys and values."""
    if stack.latent is None:
        return 2 * stack.head_dim
    latent = stack.latent
    return latent.nope_head_dim + latent.rope_head_dim + latent.value_head_dim


def _score_backward(workload: Workload) -> float:
    """Backward products per forward one; fused kernels recompute (arXiv 2307.08691, 3.1.2)."""
    return 2 if workload.attention.implementation == "eager" else 2.5


def _adapter_products(workload: Workload, part: Part) -> float:
    """Weights of adapters that one sample's tokens meet."""
    rank = workload.adapter.rank
    return sum(
        module_tokens(workload, m) * rank * (m.shape[0] + prod(m.shape[1:])) * m.copies
        for m in workload.adapted
        if m.part == part
    )


def passes_gradient(workload: Workload, part: Part) -> bool:
    """Whether a gradient passes through the part: something is trained in it or before it."""
    needs = count(workload).trained_parts | count(workload).adapted_parts
    if part == "vision":
        return "vision" in needs
    if part == "projector":
        return bool(needs & {"vision", "projector"})
    return True
