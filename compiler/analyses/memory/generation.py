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

    A step appends to the cache of one layer by a copy (transformers 5.23 `cache_utils.py`,
    `DynamicLayer.update`: `torch.cat`) and takes the last token's logits in fp32
    (`generation/utils.py`, `_sample`). At ZeRO stage 3 TRL gathers the whole model first unless
    `ds3_gather_for_generation` is off (trl 1.16 `models/utils.py`,
    `unwrap_model_for_generation`). A sliding window's cache is smaller than this.
    """
    sequences = asked.sequences * (share if asked.by_sample else 1)
    cache = sequences * asked.tokens * cache_bytes(workload, plan.states)
    layers = sum(s.layers for s in workload.architecture.stacks if s.part == "text")
    logits = 2 * _FP32 * sequences * workload.architecture.vocab
    whole = plan.counts.base + plan.counts.adapters if plan.stage == PARAMETERS else 0
    return {
        "key-value cache": cache,
        "cache on the way": cache / max(layers, 1),
        "next token's logits": float(logits),
        "gathered parameters": float(BYTES[plan.states.weights] * whole * asked.gathers),
    }


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
