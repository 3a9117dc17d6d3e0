"""What a model keeps between forward and backward, in bytes a sample of the micro batch."""

from dataclasses import field, replace
from functools import lru_cache

from tunec.compiler.analyses.memory.arithmetic import Arithmetic, arithmetic
from tunec.compiler.analyses.memory.attention import padding_saved
from tunec.compiler.analyses.memory.experts import experts_saved
from tunec.compiler.analyses.memory.layers import (
    feed_forward_saved,
    final_input_saved,
    forward_working,
    layer_saved,
    layer_working,
    norm_saved,
)
from tunec.compiler.analyses.memory.lora import adapters_saved
from tunec.compiler.analyses.memory.phase import Terms
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.ir.slots import States
from tunec.schemas.frozen import dataclass
from tunec.schemas.models.architecture import Architecture, Part, Stack


@dataclass(frozen=True, slots=True)
class Pass:
    """How one forward and backward pass runs."""

    states: States
    checkpointed: bool
    padded: bool
    """Whether samples of different length share a micro batch."""
    sequence_parallel: int
    tensor_parallel: int
    gathered: int = 1
    """Ranks whose evaluation logits are collected on each device."""


@dataclass(frozen=True, slots=True)
class Activations:
    """Bytes a sample, by name."""

    kept: Terms
    """Kept until the backward pass reaches them."""
    last_layer: Terms
    """What differentiating the last layer takes besides what is kept."""
    first_layer: Terms
    """Everything alive while the first layer is differentiated."""
    one_layer: Terms
    """What one layer and its input keep."""
    forward: Terms
    """What a forward pass takes that keeps nothing."""
    begun: Terms | None = None
    """A layer whose differentiation has begun, with what it kept; None: as the last layer."""
    half: Terms | None = None
    """The same when its feed-forward is done."""
    encoder: Terms = field(default_factory=dict)
    """Of what is kept, the encoder's, where one comes before a decoder."""


def text_tokens(workload: Workload) -> int:
    """Tokens of one sample in the language model: its text, and what its images become."""
    return workload.data.sequence + workload.data.image_tokens


@lru_cache(maxsize=2048)
def text_activations(workload: Workload, run: Pass) -> Activations:
    """Activations of the language model up to its final norm, in bytes a sample."""
    keys = text_tokens(workload)
    tokens = keys / run.sequence_parallel
    widths = arithmetic(workload, run.states, "text")
    part = part_activations(workload, run, "text", widths, tokens, keys)
    last = _stacks(workload.architecture, "text", 1)[-1]
    norm = tokens * (norm_saved(last, widths) + final_input_saved(last, widths))
    biases = tokens * _position_biases(last, widths, keys, checkpointed=run.checkpointed)
    return replace(part, kept={**part.kept, "final norm": norm, "position biases": biases})


def _position_biases(last: Stack, widths: Arithmetic, keys: float, *, checkpointed: bool) -> float:
    """Bytes a token of T5's biases that all layers share.

    The decoder attends to the encoder with one of zeros; where layers are recomputed, those of both
    halves wait as well (traced).
    """
    if not widths.biased:
        return 0
    return widths.compute * last.heads * keys * (3 if checkpointed else 1)


def part_activations(
    workload: Workload, run: Pass, part: Part, widths: Arithmetic, tokens: float, keys: float
) -> Activations:
    """Activations of the layers of one part, in bytes a sample of `tokens` tokens."""
    stacks = _stacks(workload.architecture, part, run.tensor_parallel)
    layers = sum(stack.layers for stack in stacks)
    adapters = _adapters(workload, part, widths) / layers
    padding = sum(padding_saved(s, widths, keys) for s in stacks) / len(stacks) if run.padded else 0
    one = [layer_saved(s, widths, keys) + adapters + padding for s in stacks]
    working = max(layer_working(stack, widths) for stack in stacks)
    forward = max(forward_working(stack, widths, keys) for stack in stacks)
    inputs = widths.stream * stacks[0].hidden
    half = max(
        saved - _feed_forward(stack, widths) for saved, stack in zip(one, stacks, strict=True)
    )
    if run.checkpointed:
        return Activations(
            kept={f"{part} layer inputs": tokens * layers * inputs},
            last_layer={f"{part} recomputed layer": tokens * (max(one) + working)},
            first_layer={f"{part} recomputed layer": tokens * (max(one) + working + inputs)},
            one_layer={f"{part} recomputed layer": tokens * (max(one) + inputs)},
            forward={f"{part} forward pass": tokens * forward},
            begun={f"{part} recomputed layer": tokens * (max(one) + working)},
            half={f"{part} recomputed layer": tokens * (half + working)},
            encoder=_encoder(part, widths, tokens * stacks[0].layers * inputs),
        )
    total = sum(saved * stack.layers for saved, stack in zip(one, stacks, strict=True))
    return Activations(
        kept={f"{part} activations": tokens * total},
        last_layer={f"{part} layer gradients": tokens * working},
        first_layer={f"{part} layer gradients": tokens * (max(one) + working + inputs)},
        one_layer={f"{part} layer gradients": tokens * (max(one) + inputs)},
        forward={f"{part} forward pass": tokens * forward},
        begun={f"{part} layer gradients": tokens * (max(one) + working)},
        half={f"{part} layer gradients": tokens * (half + working)},
        encoder=_encoder(part, widths, tokens * stacks[0].layers * one[0]),
    )


def _feed_forward(stack: Stack, widths: Arithmetic) -> float:
    """Bytes a token that a layer's feed-forward keeps, which its gradients let go."""
    experts = experts_saved(stack, stack.experts, widths) if stack.experts else 0
    return feed_forward_saved(stack, widths) + experts


def _encoder(part: Part, widths: Arithmetic, kept: float) -> Terms:
    return {f"{part} activations of the encoder": kept} if widths.crosses else {}


def _stacks(model: Architecture, part: Part, tensor_parallel: int) -> tuple[Stack, ...]:
    """The part's stacks as one tensor-parallel rank has them: a share of heads and inner width."""
    return tuple(
        replace(
            stack,
            heads=max(stack.heads // tensor_parallel, 1),
            kv_heads=max(stack.kv_heads // tensor_parallel, 1),
            ffn=stack.ffn // tensor_parallel,
        )
        if tensor_parallel > 1
        else stack
        for stack in model.stacks
        if stack.part == part
    )


def _adapters(workload: Workload, part: Part, widths: Arithmetic) -> float:
    """Bytes a token that all adapters of a part keep together."""
    modules = [module for module in workload.adapted if module.part == part]
    return adapters_saved(workload, modules, widths, lambda _: 1)
