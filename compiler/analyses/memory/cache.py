"""The cache of keys and values that generation grows: bytes of one sequence."""

from typing import Final

from packaging.version import Version

from tunec.compiler.analyses.memory.arithmetic import arithmetic
from tunec.compiler.analyses.memory.dtypes import BYTES
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.ir.slots import States
from tunec.schemas.models.architecture import Stack

_SLIDES: Final = Version("4.57")
"""transformers 4.57.6 to 5.23.0 `cache_utils.py`, `DynamicSlidingWindowLayer`; 4.51.3 has none."""

_LATENT: Final = Version("5.15")
"""transformers 5.15.1 and 5.23.0 `models/deepseek_v3/modeling_deepseek_v3.py` and deepseek_v2 cache
latent keys and values; 5.6.2 and before cache what they are multiplied out to."""


def cache_bytes(workload: Workload, states: States) -> float:
    """Bytes a token of keys and values in all layers."""
    elements = sum(stack.layers * _cached(workload, stack) for stack in writers(workload))
    return cached_bytes(workload, states) * elements


def cache_held(workload: Workload, states: States, prompt: int, written: int) -> float:
    """Bytes of one sequence's cache when so many tokens are written after a prompt.

    The decoder of an encoder-decoder holds what it wrote, and in each layer the prompt as its
    encoder read it (transformers 5.23 `cache_utils.py`, `EncoderDecoderCache`). A layer with a
    sliding window holds the last of it; while it reads the prompt, all of that, of which only a
    view is kept until the next token.
    """
    read = 0 if is_apart(workload) else prompt
    elements = 0.0
    for stack in writers(workload):
        narrow = stack.windowed_layers if written and _slides(workload) else 0
        window = min(read + written, stack.window or 0)
        tokens = (stack.layers - narrow) * (read + written) + narrow * window
        elements += _cached(workload, stack) * (tokens + stack.layers * (prompt - read))
    return cached_bytes(workload, states) * elements


def _cached(workload: Workload, stack: Stack) -> int:
    """Elements that one token leaves in one layer's cache."""
    version = workload.version("transformers")
    if stack.latent is not None and (version is None or version >= _LATENT):
        return stack.latent.key_value_rank + stack.latent.rope_head_dim
    return multiplied(stack)


def multiplied(stack: Stack) -> int:
    """Elements of one token's keys and values in one layer; latent ones as they are compared."""
    if stack.latent is None:
        return 2 * stack.kv_heads * stack.head_dim
    latent = stack.latent
    key = latent.nope_head_dim + latent.rope_head_dim
    return stack.heads * (key + latent.value_head_dim)


def is_apart(workload: Workload) -> bool:
    """Whether an encoder reads the prompt, and a decoder of its own writes."""
    return workload.architecture.kind == "encoder-decoder"


def writers(workload: Workload) -> tuple[Stack, ...]:
    """The layers that write: those of the language model, or of its decoder."""
    text = tuple(each for each in workload.architecture.stacks if each.part == "text")
    return tuple(each for each in text if each.cross_attention) if is_apart(workload) else text


def cached_bytes(workload: Workload, states: States) -> float:
    """Bytes of an element of keys and values on average.

    Both are what a projection gives. Under autocast over fp32 weights keys are turned by fp32
    tables and stay in fp32 (traced; transformers 5.23 `apply_rotary_pos_emb`: cos and sin have the
    stream's dtype).
    """
    widths = arithmetic(workload, states, "text")
    turned = widths.stream if widths.rotary != "none" else 0
    return (max(widths.answer, turned) + widths.answer) / 2


def element_bytes(workload: Workload, states: States) -> int:
    """Bytes of an element as products make it."""
    return BYTES[workload.precision.compute if states.autocast else states.weights]


def _slides(workload: Workload) -> bool:
    version = workload.version("transformers")
    return version is None or version >= _SLIDES
