"""Generation inside of training: the cache of keys and values, and parameters made whole for it."""

from tunec.compiler.analyses.memory.dtypes import BYTES
from tunec.compiler.analyses.memory.phase import Terms
from tunec.compiler.analyses.memory.sharding import PARAMETERS, Sharding
from tunec.compiler.analyses.memory.workload import Generation, Workload
from tunec.compiler.ir.slots import States
from tunec.schemas.models.architecture import Stack

_FP32 = 4


def generating(workload: Workload, plan: Sharding, asked: Generation, share: int = 1) -> Terms:
    """What generation holds besides the weights of the rank, in bytes.

    `share`: samples of the rank in one optimizer step. GRPO writes the answers of a whole step at
    once (trl 0.18.2 to 1.16.0 `GRPOConfig.__post_init__`: `steps_per_generation` is the
    accumulation; `grpo_trainer.py`, `_generate_single_turn`: one `generate`).

    A step appends to the cache of one layer by a copy, keys first (transformers 5.23
    `cache_utils.py`, `DynamicLayer.update`: `torch.cat`), and then takes the last token's logits in
    fp32, and their softmax (`generation/utils.py`, `_sample`). At ZeRO stage 3 TRL gathers the
    whole model first unless `ds3_gather_for_generation` is off (trl 1.16 `models/utils.py`,
    `unwrap_model_for_generation`); under FSDP units come and go as in any forward pass
    (`grpo_trainer.py`: `summon_full_params(recurse=False)`). A sliding window's cache is smaller.
    """
    sequences = _sequences(asked, share)
    cache = sequences * asked.tokens * cache_bytes(workload, plan.states)
    layers = sum(s.layers for s in workload.architecture.stacks if s.part == "text")
    size = BYTES[workload.precision.compute if plan.states.autocast else plan.states.weights]
    logits = float((size + 2 * _FP32) * sequences * workload.architecture.vocab)
    moved = cache / max(layers, 1) / 2
    gathers = asked.gathers and plan.deepspeed and plan.stage == PARAMETERS
    whole = plan.counts.base + plan.counts.adapters
    return {
        "key-value cache": cache,
        "cache on the way": moved if moved > logits else 0.0,
        "next token's logits": 0.0 if moved > logits else logits,
        "gathered parameters": float(BYTES[plan.states.weights] * whole * gathers),
    }


def prompting(
    workload: Workload, plan: Sharding, asked: Generation, forward: float, share: int = 1
) -> Terms:
    """What generation holds while it reads the prompts of all sequences at once, in bytes.

    `forward`: bytes that a layer works in for one sample of all tokens. Prompts are padded to the
    longest, so a mask goes with them, a byte for each pair of places.
    """
    sequences, prompt = _sequences(asked, share), asked.tokens - asked.steps
    found = generating(workload, plan, asked, share)
    return {
        "key-value cache": sequences * prompt * cache_bytes(workload, plan.states),
        "prompt forward pass": sequences * forward * prompt / max(asked.tokens, 1),
        "prompt masks": float(sequences * prompt**2),
        "gathered parameters": found["gathered parameters"],
    }


def _sequences(asked: Generation, share: int) -> int:
    return asked.sequences * (share if asked.by_sample else 1)


def cache_bytes(workload: Workload, states: States) -> float:
    """Bytes a token of keys and values in all layers; latent ones are multiplied out first."""
    size = BYTES[workload.precision.compute if states.autocast else states.weights]
    return float(
        size
        * sum(
            stack.layers * _cached(stack)
            for stack in workload.architecture.stacks
            if stack.part == "text"
        )
    )


def _cached(stack: Stack) -> int:
    if stack.latent is None:
        return 2 * stack.kv_heads * stack.head_dim
    latent = stack.latent
    key = latent.nope_head_dim + latent.rope_head_dim
    return stack.heads * (key + latent.value_head_dim)
