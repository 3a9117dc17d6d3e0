"""Generated answers: the cache of keys and values, and parameters gathered for generation."""

from typing import Final

from packaging.version import Version

from tunec.compiler.analyses.memory.arithmetic import arithmetic
from tunec.compiler.analyses.memory.modules import BYTES
from tunec.compiler.analyses.memory.sharding import PARAMETERS, Sharding
from tunec.compiler.analyses.memory.timeline import Sizes
from tunec.compiler.analyses.memory.workload import Generation, Workload
from tunec.compiler.ir.slots import States
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Stack

_SLIDES: Final = Version("4.57")
"""transformers 4.57.6 to 5.23.0 `cache_utils.py`, `DynamicSlidingWindowLayer`; 4.51.3 has none."""

_LATENT: Final = Version("5.15")
"""transformers 5.15.1 and 5.23.0 `models/deepseek_v3/modeling_deepseek_v3.py` and deepseek_v2 cache
latent keys and values; 5.6.2 and before cache what they are multiplied out to."""


def cache_bytes(workload: Workload, states: States) -> float:
    """Bytes per token of keys and values in all layers."""
    elements = sum(stack.layers * _cached(workload, stack) for stack in writers(workload))
    return cached_bytes(workload, states) * elements


def cache_held(workload: Workload, states: States, prompt: int, written: int) -> float:
    """Bytes of one sequence's cache after `written` tokens are generated from a prompt.

    The decoder of an encoder-decoder caches its own tokens and, in each layer, the prompt or sound
    that its encoder read (transformers 5.23 `cache_utils.py`, `EncoderDecoderCache`). A layer with
    a sliding window caches the window's last tokens; while it reads the prompt, it holds the whole
    prompt, of which only a view is kept until the next token.
    """
    read = 0 if is_apart(workload) else prompt
    prompt = workload.architecture.source or prompt
    elements = 0.0
    for stack in writers(workload):
        narrow = stack.windowed_layers if written and _slides(workload) else 0
        window = min(read + written, stack.window or 0)
        tokens = (stack.layers - narrow) * (read + written) + narrow * window
        elements += _cached(workload, stack) * (tokens + stack.layers * (prompt - read))
    return cached_bytes(workload, states) * elements


def _cached(workload: Workload, stack: Stack) -> int:
    """Elements that one token adds to one layer's cache."""
    version = workload.version("transformers")
    if stack.latent is not None and (version is None or version >= _LATENT):
        return stack.latent.key_value_rank + stack.latent.rope_head_dim
    return multiplied(stack)


def multiplied(stack: Stack) -> int:
    """Elements of one token's keys and values in one layer; latent ones in full width."""
    if stack.latent is None:
        return 2 * stack.kv_heads * stack.head_dim
    latent = stack.latent
    key = latent.nope_head_dim + latent.rope_head_dim
    return stack.heads * (key + latent.value_head_dim)


def is_apart(workload: Workload) -> bool:
    """Whether an encoder reads the prompt, and a separate decoder generates."""
    return workload.architecture.kind == "encoder-decoder"


def writers(workload: Workload) -> tuple[Stack, ...]:
    """The layers that generate: those of the language model, or of its decoder."""
    text = tuple(each for each in workload.architecture.stacks if each.part == "text")
    return tuple(each for each in text if each.cross_attention) if is_apart(workload) else text


def cached_bytes(workload: Workload, states: States) -> float:
    """Bytes per element of keys and values, on average.

    Both are outputs of projections. Under autocast over fp32 weights, keys are rotated by fp32
    tables and stay in fp32 (traced; transformers 5.23 `apply_rotary_pos_emb`: cos and sin have the
    stream's dtype).
    """
    widths = arithmetic(workload, states, "text")
    turned = widths.stream if widths.rotary != "none" else 0
    return (max(widths.answer, turned) + widths.answer) / 2


def element_bytes(workload: Workload, states: States) -> int:
    """Bytes per element of a product's output."""
    return BYTES[workload.precision.compute if states.autocast else states.weights]


def _slides(workload: Workload) -> bool:
    version = workload.version("transformers")
    return version is None or version >= _SLIDES


_FP32: Final = 4
_TOKEN: Final = 8
"""Bytes of a token's id (int64)."""
_LAST_ALONE: Final = Version("4.45")
"""The first release whose models make the last token's logits alone of a prompt: transformers
4.44.2 `models/llama/modeling_llama.py` has `logits.float()` of all, 4.46.3 `num_logits_to_keep`.
"""
_COPIES_EXPERTS: Final = Version("5.0")
"""See `_selected`."""
_SUMMONS: Final = Version("4.46")
"""The first release known to make FSDP 1's parameters whole for `generate`: transformers 4.46.3 to
5.23.0 `trainer_seq2seq.py`, `prediction_step`: `summon_full_params`; 4.44.2 does not."""


def generating(workload: Workload, plan: Sharding, asked: Generation, share: int = 1) -> Sizes:
    """What GRPO's generation holds besides the weights of the rank, in bytes.

    `share`: samples of the rank in one optimizer step. GRPO writes the answers of a whole step at
    once (trl 0.18.2 to 1.16.0 `GRPOConfig.__post_init__`: `steps_per_generation` is the
    accumulation; `grpo_trainer.py`, `_generate_single_turn`: one `generate`).

    At ZeRO stage 3 TRL gathers the whole model first unless `ds3_gather_for_generation` is off (trl
    1.16 `models/utils.py`, `unwrap_model_for_generation`); under FSDP units come and go as in any
    forward pass (`grpo_trainer.py`: `summon_full_params(recurse=False)`).
    """
    found = writing(workload, generating_states(workload, plan.states), asked)
    number = _sequences(asked, share)
    gathers = asked.gathers and plan.deepspeed and plan.stage == PARAMETERS
    whole = plan.counts.base + plan.counts.adapters
    return {
        **{name: number * size for name, size in found.items()},
        "gathered parameters": float(BYTES[plan.states.weights] * whole * gathers),
    }


def prompting(
    workload: Workload, plan: Sharding, asked: Generation, forward: float, share: int = 1
) -> Sizes:
    """Bytes that generation holds while it reads the prompts of all sequences at once.

    `forward`: bytes of a layer's working memory for one sample of all tokens.
    """
    number = _sequences(asked, share)
    read = reading(workload, generating_states(workload, plan.states), asked, forward, asked.tokens)
    found = generating(workload, plan, asked, share)
    return {
        **{name: number * size for name, size in read.items()},
        "gathered parameters": found["gathered parameters"],
    }


def generating_states(workload: Workload, states: States) -> States:
    """The states with which answers are generated: see `answers._casting_nothing`."""
    return replace(states, autocast=False) if workload.adapted and states.autocast else states


def writing(workload: Workload, states: States, asked: Generation) -> Sizes:
    """Bytes that one sequence holds at its last token.

    A step appends to the cache of one layer by a copy, keys first (transformers 5.23
    `cache_utils.py`, `DynamicLayer.update`: `torch.cat`), and then takes the last token's logits in
    fp32, and their softmax (`generation/utils.py`, `_sample`). Beam search keeps their logarithms
    and the sums over each beam as well (`_beam_search`), and then reorders the cache of each layer
    by the remaining beams (`DynamicLayer.reorder_cache`: `index_select`).
    """
    prompt = asked.tokens - asked.steps
    cache = cache_held(workload, states, prompt, asked.steps)
    layers = sum(each.layers for each in writers(workload))
    copies = 3 if asked.beams > 1 else 2
    logits = (element_bytes(workload, states) + copies * _FP32) * workload.architecture.vocab
    copied = cache / max(layers, 1) / 2
    steps = {
        "cache on the way": max(copied, _compared(workload, states, asked.tokens)),
        "next token's logits": float(logits),
        "selected experts": _selected(workload, states, asked),
    }
    most = max(steps, key=steps.__getitem__)
    return {"key-value cache": cache, most: steps[most]}


def reading(
    workload: Workload, states: States, asked: Generation, forward: float, tokens: int
) -> Sizes:
    """Bytes that one sequence holds while its prompt is read.

    `forward`: bytes of a layer's working memory for one sample of `tokens` tokens. Prompts are
    padded to the longest, so they have a mask, one byte for each pair of positions. Every beam
    reads the prompt.
    """
    prompt = asked.tokens - asked.steps
    alone = 1 if is_apart(workload) and asked.beams > 1 else asked.beams
    logits = _prompt_logits(workload, states) * prompt
    working = forward * prompt / max(tokens, 1)
    if workload.attention.implementation == "eager":
        heads = max(each.heads for each in writers(workload))
        working -= 2 * _FP32 * heads * prompt * max(tokens - prompt, 0)
    return {
        "key-value cache": cache_held(workload, states, prompt, 0),
        "prompt forward pass": max(working, 0.0) * alone / asked.beams,
        "prompt masks": float(prompt**2),
        "prompt logits": logits,
    }


def answered(asked: Generation, ranks: int) -> Sizes:
    """Bytes kept of a sample until they are moved to the host: its answer and its labels.

    Both are padded to the same length (transformers 5.23 `trainer_seq2seq.py`, `prediction_step`)
    and gathered from all ranks on each (`trainer.py`, `evaluation_loop`).
    """
    return {"kept answers": float(_TOKEN * 2 * asked.tokens * ranks)}


def gathered_for_generation(workload: Workload, plan: Sharding) -> Sizes:
    """Parameters that FSDP 1 gathers, in their stored dtype, for generation in evaluation."""
    version = workload.version("transformers")
    if plan.fsdp.version != 1 or (version is not None and version < _SUMMONS):
        return {}
    return {"gathered parameters": float(plan.parameter * plan.counts.base)}


def _selected(workload: Workload, states: States, asked: Generation) -> float:
    """Bytes of the experts that one token passes through, which are copied for this token alone.

    transformers 5.0.0 to 5.23.0 `generation/utils.py`, `_optimize_model_for_decode`: tokens after
    the prompt go through `integrations/moe.py`, `batched_mm_experts_forward`, whose indexing copies
    weights; 4.57.6 has neither. Beam search does not switch to it.
    """
    version = workload.version("transformers")
    if asked.beams > 1 or (version is not None and version < _COPIES_EXPERTS):
        return 0.0
    size = BYTES[states.weights]
    elements = (
        s.experts.active * (3 if s.gated else 2) * s.hidden * s.experts.ffn
        for s in writers(workload)
        if s.experts is not None
    )
    return float(size * max(elements, default=0))


def _compared(workload: Workload, states: States, tokens: int) -> float:
    """Bytes of one layer's keys and values, if attention reads other tensors than the cached ones.

    Eager attention repeats them for all heads (transformers 5.23
    `models/gemma2/modeling_gemma2.py`, `eager_attention_forward`: `repeat_kv`), latent attention
    multiplies them out.
    """
    size, eager = element_bytes(workload, states), workload.attention.implementation == "eager"
    wide = [0]
    for each in writers(workload):
        if each.latent is not None:
            wide.append(multiplied(each))
        elif eager and 1 < each.kv_heads < each.heads:
            wide.append(2 * each.heads * each.head_dim)
    return float(size * tokens * max(wide))


def _prompt_logits(workload: Workload, states: States) -> float:
    """Bytes per token of the prompt's logits and their fp32 copy, if all logits are computed."""
    version = workload.version("transformers")
    model = workload.architecture
    if version is None or version >= _LAST_ALONE or model.remote_code or is_apart(workload):
        return 0.0
    return float((element_bytes(workload, states) + _FP32) * model.vocab)


def _sequences(asked: Generation, share: int) -> int:
    return asked.sequences * (share if asked.by_sample else 1)
