"""The model's weights on the device."""

from typing import Final

from tunec.compiler.analyses.memory.diffusion import second_attentions
from tunec.compiler.analyses.memory.dtypes import BYTES, quantized_bytes
from tunec.compiler.analyses.memory.phase import Terms
from tunec.compiler.analyses.memory.sharding import PARAMETERS, Sharding
from tunec.compiler.analyses.memory.workload import Workload

_SIDE: Final = {False: 192, True: 384}
"""Places on a side of the table of positions: 384 in SD3.5 medium, the one with second attentions,
192 in SD3 medium and 3.5 large (diffusers `scripts/convert_sd3_to_diffusers.py`)."""


def _positions(workload: Workload) -> int:
    """Elements of a buffer that no module names.

    diffusers 0.42 `models/embeddings.py`, `PatchEmbed.pos_embed`.
    """
    side = _SIDE[second_attentions(workload) > 0]
    return side * side * workload.architecture.stacks[0].hidden


def weights(workload: Workload, plan: Sharding) -> Terms:
    """Weights that stay on the device between steps, in bytes.

    From ZeRO stage 3 on each rank holds its share, quantised weights as well (bitsandbytes stores
    them in `quantization.storage`, so that they can be split); stages 1 and 2 leave all weights
    whole on every rank, a frozen base too.
    """
    terms: dict[str, float] = {
        "auxiliary models": float(BYTES[plan.states.weights] * plan.counts.components)
    }
    if workload.architecture.family == "SD3Transformer2DModel":
        terms["position table"] = float(BYTES[plan.states.weights] * _positions(workload))
    if not plan.parameters_away:
        terms["frozen weights"] = plan.shard(frozen_bytes(workload, plan), PARAMETERS)
        terms["trained weights"] = plan.shard(plan.parameter * plan.counts.trained, PARAMETERS)
        terms["adapters"] = plan.shard(plan.parameter * plan.counts.adapters, PARAMETERS)
        terms["reference model"] = _reference(workload, plan)
    return terms


def _reference(workload: Workload, plan: Sharding) -> float:
    """A second model for a preference method, sharded at stage 3 and only there.

    trl 1.16 `models/utils.py`, `prepare_deepspeed`: any other stage becomes 0.
    """
    if workload.preference is None or workload.preference.reference != "resident":
        return 0
    return plan.shard(BYTES[plan.states.weights] * plan.counts.base, PARAMETERS)


def frozen_bytes(workload: Workload, plan: Sharding) -> float:
    """Bytes of all weights without gradients, sharded or not."""
    counts, quantization = plan.counts, workload.quantization
    plain = BYTES[plan.states.weights] * counts.frozen
    if not counts.quantized:
        return plain
    row_scales = 4 * counts.quantized_rows if quantization.format == "int8" else 0
    return plain + quantized_bytes(quantization) * counts.quantized + row_scales


def gathered(plan: Sharding, layers: int, *, checkpointed: bool) -> Terms:
    """Whole parameters at stage 3 where forward turns to backward, in bytes.

    Prefetching goes on until `max_live_parameters` elements are whole. Besides, nothing is released
    that is needed again within `max_reuse_distance` elements: at the turn a parameter x elements
    before the end is 2x away from its next use, 3x where layers are recomputed on the way. Traced
    with deepspeed 0.19.8: the larger of the two is alive.
    """
    if plan.stage < PARAMETERS:
        return {}
    reused = plan.zero.max_reuse_distance / (3 if checkpointed else 2)
    return _whole(plan, max(plan.zero.max_live_parameters, reused), layers)


def gathered_layer(plan: Sharding, layers: int) -> Terms:
    """Whole parameters at stage 3 near the end of a backward pass, in bytes: a layer's, mostly."""
    return _whole(plan, 0, layers) if plan.stage == PARAMETERS else {}


def _whole(plan: Sharding, elements: float, layers: int) -> Terms:
    base, size = plan.counts.base + plan.counts.adapters, BYTES[plan.states.weights]
    live = min(base, max(elements, base / max(layers, 1), plan.counts.largest))
    return {
        "gathered parameters": size * live,
        "persistent parameters": float(size * _persistent(plan)),
    }


def _persistent(plan: Sharding) -> int:
    """Elements in parameters of at most `persistence_threshold`, which are never split."""
    threshold = plan.zero.persistence_threshold
    return sum(total for size, total in plan.counts.sizes if size <= threshold)
