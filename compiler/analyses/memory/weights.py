"""The model's weights on the device."""

from math import prod
from typing import Final

from packaging.version import Version

from tunec.compiler.analyses.memory.causal_masks import causal_masks
from tunec.compiler.analyses.memory.diffusion import second_attentions
from tunec.compiler.analyses.memory.dtypes import BYTES, PACKED, quantized_bytes
from tunec.compiler.analyses.memory.fetches import Live, live_elements
from tunec.compiler.analyses.memory.frozen_units import makes_fp32
from tunec.compiler.analyses.memory.modules import FOUR_BIT, adapter_shapes, experts_apart
from tunec.compiler.analyses.memory.rotary import rotary_tables
from tunec.compiler.analyses.memory.sharding import PARAMETERS, Sharding
from tunec.compiler.analyses.memory.timeline import Sizes
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


def weights(workload: Workload, plan: Sharding) -> Sizes:
    """Weights that stay on the device between steps, in bytes.

    From ZeRO stage 3 on each rank holds its share, quantised weights as well (bitsandbytes stores
    them in `quantization.storage`, so that they can be split) but for their scales; stages 1 and 2
    leave all weights whole on every rank, a frozen base too.
    """
    terms: dict[str, float] = {
        "generation engine": float(workload.generation_engine_bytes),
    }
    if workload.architecture.family == "SD3Transformer2DModel":
        terms["position table"] = float(BYTES[plan.states.weights] * _positions(workload))
    scales = scale_bytes(workload, plan) if plan.counts.quantized else 0.0
    if scales:
        terms["scales of packed weights"] = scales
    if plan.stage == PARAMETERS and not plan.fsdp.version:
        terms["persistent parameters"] = float(BYTES[plan.states.weights] * _persistent(plan))
    tables = rotary_tables(workload, plan.states)
    if tables:
        terms["rotary tables"] = tables
    masks = causal_masks(workload)
    if masks:
        terms["causal masks"] = masks
    if workload.kept_components:
        kept = sum(each.parameters for each in workload.kept_components)
        terms["text encoders and VAE"] = float(BYTES[plan.states.weights] * kept)
    if not plan.parameters_away:
        frozen = frozen_bytes(workload, plan) - scales
        terms["frozen weights"] = plan.shard(frozen, PARAMETERS)
        trained, adapters = plan.wanting
        terms["trained weights"] = plan.shard(plan.parameter * trained, PARAMETERS)
        terms["adapters"] = plan.shard(plan.parameter * adapters, PARAMETERS)
        terms["reference model"] = _reference(workload, plan)
    return terms


def encoders(plan: Sharding) -> Sizes:
    """Models that encode captions and pictures before there is a model to train.

    simpletuner 3.1.6 and 4.10.1 `helpers/training/trainer.py`, `Trainer.run`: `init_data_backend`
    fills the caches, `init_unload_text_encoder` and `init_unload_vae` let go of what filled them,
    `init_load_base_model` comes after.
    """
    return {"text encoders and VAE": float(BYTES[plan.states.weights] * plan.counts.components)}


def second_shards(plan: Sharding) -> float:
    """Bytes of one rank's part of the second set of 16-bit shards (ZeRO++, arXiv 2306.10209).

    A backward pass gathers from the ranks of one group instead of all. A parameter's parts are made
    when it is released for the first time after a step, where its first ones lie, and let go after
    the next step (deepspeed 0.19.8 `runtime/zero/partition_parameters.py`, `_partition_param_sec`;
    `stage3.py`, `invalidate_secondary_tensor`).
    """
    ranks = plan.zero.hpz_partition
    if plan.stage < PARAMETERS or ranks <= 1:
        return 0
    return BYTES[plan.states.weights] * (plan.counts.base + plan.counts.adapters) / ranks


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
    made = "fp32" if makes_fp32(workload, plan.fsdp, plan.states) else plan.states.weights
    plain = BYTES[made] * counts.frozen
    if not counts.quantized:
        return plain
    row_scales = 4 * counts.quantized_rows if quantization.format == "int8" else 0
    return plain + quantized_bytes(quantization) * counts.quantized + row_scales


def loaded_whole(workload: Workload, plan: Sharding) -> Sizes:
    """A quantised base, which each rank has whole on its device before FSDP splits it.

    transformers 5.0.0 to 5.23.0 quantizers/quantizer_bnb_4bit.py `update_device_map`: the current
    device. 4.46.3 to 4.57.6 modeling_utils.py `_load_state_dict_into_meta_model` moves each weight
    to the host once it is packed, where FSDP loads efficiently.
    """
    version = workload.version("transformers")
    moves = version is not None and version < _KEEPS_ON_DEVICE and plan.fsdp.efficient_loading
    return {"whole base": 0.0 if moves else frozen_bytes(workload, plan)}


_KEEPS_ON_DEVICE: Final = Version("5.0")


def scale_bytes(workload: Workload, plan: Sharding) -> float:
    """Bytes of what is no parameter of a packed weight, and so is on each rank, whole.

    bitsandbytes 0.50.2 `functional.py`, `QuantState`, which `nn/modules.py`, `Params4bit`, keeps as
    an attribute: neither FSDP nor ZeRO stage 3 splits it. Counted apart only where they split.
    """
    if plan.stage < PARAMETERS or workload.quantization.format not in FOUR_BIT:
        return 0.0
    return (quantized_bytes(workload.quantization) - PACKED) * plan.counts.quantized


def gathered(plan: Sharding, *, checkpointed: bool) -> Sizes:
    """Whole parameters at stage 3 where forward turns to backward, in bytes: at least the head's.

    Prefetching goes on until `max_live_parameters` elements are whole. Besides, nothing is released
    that is needed again within `max_reuse_distance` elements: at the turn a parameter x elements
    before the end is 2x away from its next use, 3x where layers are recomputed on the way. Traced
    with deepspeed 0.19.8: the larger of the two is alive. Blocks of experts that come whole are
    followed one by one (`fetches`).
    """
    found = _followed(plan, checkpointed=checkpointed)
    if found is not None:
        return _whole(plan, found.turn, plan.counts.output)
    kept = min(_kept(plan, checkpointed=checkpointed), plan.counts.base - _passed(plan))
    return _whole(plan, kept, plan.counts.output)


def _passed(plan: Sharding) -> int:
    """Elements that no backward pass comes to: of an embedding that is frozen and used once.

    Nor to a tower that no picture passes.
    """
    model = plan.workload.architecture
    comes = plan.counts.embedding or plan.counts.tied or model.tied or model.embedding is None
    return plan.counts.unvisited + (0 if comes else model.vocab * model.hidden)


def gathered_at(plan: Sharding, layers: int, left: float, *, checkpointed: bool) -> Sizes:
    """Whole parameters at stage 3 in bytes, with a share of layers left; at least one layer's."""
    found = _followed(plan, checkpointed=checkpointed)
    if found is not None:
        begun = round((1 - left) * len(found.layers))
        return _whole(plan, (found.turn, *found.layers)[begun], 0)
    unit = _unit(plan, layers)
    visited = plan.counts.base - plan.counts.unvisited
    most = min(_kept(plan, checkpointed=checkpointed), left * visited + unit)
    return _whole(plan, most, unit)


def gathered_last(plan: Sharding, layers: int, *, checkpointed: bool) -> Sizes:
    """Whole parameters at stage 3 when the last layer is differentiated, in bytes."""
    left = 1 - 1 / max(layers, 1) if plan.leaf else 1.0
    return gathered_at(plan, layers, left, checkpointed=checkpointed)


def gathered_layer(plan: Sharding, layers: int, *, checkpointed: bool) -> Sizes:
    """Whole parameters at stage 3 near the end of a backward pass, in bytes: a layer's, mostly."""
    if plan.leaf:
        return gathered_at(plan, layers, 0.0, checkpointed=checkpointed)
    return _whole(plan, 0, _unit(plan, layers))


def gathered_together(plan: Sharding, *, checkpointed: bool) -> tuple[float, Sizes]:
    """Whole parameters at stage 3 while some are copied out of the buffers in which several come.

    With the share of the layers that a forward pass has reached by then. deepspeed 0.19.8
    `runtime/zero/partition_parameters.py`, `AllGatherCoalescedHandle`. Followed only as
    `_followed` says.
    """
    found = _followed(plan, checkpointed=checkpointed)
    if found is None:
        return 0.0, {}
    buffer = {"gather buffer": float(BYTES[plan.states.weights] * found.buffers)}
    return found.reached, {**_whole(plan, found.beside, 0), **buffer}


def fetched(plan: Sharding) -> Sizes:
    """The buffer in which layers' parameters come together at stage 3, in bytes.

    Modules are fetched whole, in their order, until there are as many elements as a prefetch takes
    (deepspeed 0.19.8 `runtime/zero/partitioned_param_coordinator.py`, `fetch_sub_module`).
    """
    if plan.stage < PARAMETERS or lies_whole(plan):
        return {}
    sizes = [prod(m.shape) for m in plan.workload.architecture.modules if "{}" in m.path]
    asked, together = min(plan.zero.prefetch_bucket, plan.counts.base), 0
    turns = -(-asked // max(sum(sizes), 1))
    for size in sizes * turns:
        together += size
        if together >= asked:
            break
    return {"gather buffer": float(BYTES[plan.states.weights] * min(together, plan.counts.base))}


def _followed(plan: Sharding, *, checkpointed: bool) -> Live | None:
    """Whole elements visit by visit, where stage 3 gathers blocks of experts.

    So too where the head alone has more than `max_live_parameters` elements: it is fetched while
    layers have as many (BLOOM, mT5).
    """
    most = plan.zero.max_live_parameters
    ahead = plan.counts.output > most > plan.counts.inner
    if plan.stage < PARAMETERS or not (plan.leaf or ahead) or lies_whole(plan):
        return None
    workload = plan.workload
    apart = experts_apart(workload)
    return live_elements(workload.architecture, plan.zero, checkpointed=checkpointed, apart=apart)


def _kept(plan: Sharding, *, checkpointed: bool) -> float:
    """Elements that prefetching or reuse keeps whole."""
    reused = plan.zero.max_reuse_distance / (3 if checkpointed else 2)
    return max(plan.zero.max_live_parameters, reused)


def _unit(plan: Sharding, layers: int) -> float:
    """Elements that are gathered together while a layer is differentiated."""
    visited = plan.counts.base - plan.counts.unvisited
    return max(visited / max(layers, 1), plan.counts.largest)


def _whole(plan: Sharding, elements: float, unit: float) -> Sizes:
    """So many elements, at least a unit's; what is whole since its first use has no second part."""
    if plan.stage < PARAMETERS or lies_whole(plan):
        return {}
    counts, size = plan.counts, BYTES[plan.states.weights]
    base = counts.base + counts.adapters
    live = min(base - counts.unvisited - _persistent(plan), max(elements, unit))
    return {
        "gathered parameters": size * live,
        "second shards": second_shards(plan) * (1 - min(elements / base, 1)),
    }


def lies_whole(plan: Sharding) -> bool:
    """Whether a parameter's only shard is the parameter, so that gathering makes nothing.

    deepspeed 0.19.8 `runtime/zero/partition_parameters.py`, `_no_gather_coalesced`.
    """
    return plan.shards == 1 and not plan.parameters_away


def _persistent(plan: Sharding) -> int:
    """Elements in parameters of at most `persistence_threshold`, which stay whole.

    deepspeed 0.19.8 `runtime/zero/parameter_offload.py`, `mark_persistent_parameters`; after a step
    they are gathered at once (`stage3.py`, `_post_step`). Adapters mostly are so small.
    """
    threshold, workload = plan.zero.persistence_threshold, plan.workload
    held = sum(total for size, total in plan.counts.sizes if size <= threshold)
    for module in workload.adapted:
        sizes = map(prod, adapter_shapes(module, workload.adapter.rank))
        held += module.copies * sum(size for size in sizes if size <= threshold)
    return held
