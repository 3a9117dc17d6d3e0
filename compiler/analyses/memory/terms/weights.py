"""The weights on the device: those that stay, and those that loading and saving gather."""

from math import prod
from typing import Final

from packaging.version import Version

from tunec.compiler.analyses.memory.diffusion import second_attentions
from tunec.compiler.analyses.memory.modules import (
    BYTES,
    FOUR_BIT,
    PACKED,
    adapter_shapes,
    quantized_bytes,
)
from tunec.compiler.analyses.memory.sharding import PARAMETERS, Sharding
from tunec.compiler.analyses.memory.terms.fsdp_units import makes_fp32, unit_sizes
from tunec.compiler.analyses.memory.timeline import Sizes
from tunec.compiler.analyses.memory.workload import Layout, Workload
from tunec.compiler.ir.slots import States
from tunec.schemas.terms import FloatDtype

_UNTIL: Final = {
    "llama": Version("4.41"),
    "olmo": Version("4.41"),
    "mistral": Version("4.42"),
    "qwen2": Version("4.45"),
    "qwen2_moe": Version("4.45"),
    "starcoder2": Version("4.45"),
    "falcon": Version("4.45"),
    "mixtral": Version("4.48"),
}
"""The first release whose attention keeps none (`models/<family>/modeling_<family>.py`,
`register_buffer("cos_cached", ...)` in the wheels 4.40.2, 4.41.2, 4.42.4, 4.43.4, 4.44.2, 4.45.2,
4.46.3, 4.47.1 and 4.48.0). Families whose heads are turned in part have smaller ones, left out."""

_TABLES: Final = 2
"""Cosine and sine, each a row of the head's width for every position."""


def rotary_tables(workload: Workload, states: States) -> float:
    """Bytes of the tables on each rank: buffers, which are never split, in the loaded dtype."""
    model, version = workload.architecture, workload.version("transformers")
    until = _UNTIL.get(model.family)
    if version is None or until is None or version >= until:
        return 0.0
    width = sum(stack.layers * stack.head_dim for stack in model.stacks if stack.part == "text")
    return float(_TABLES * BYTES[_loaded(workload, states)] * (model.context or 0) * width)


def _loaded(workload: Workload, states: States) -> FloatDtype:
    """The dtype in which the model was loaded: k-bit preparation changes only parameters."""
    if workload.quantization.format != "none":
        return workload.precision.compute
    return states.weights if workload.adapter.kind != "none" else states.trainable


_ONCE: Final = frozenset({"gpt_bigcode"})
_EACH_LAYER: Final = frozenset({"gpt_neo"})
"""transformers 5.23 `models/gpt_bigcode/modeling_gpt_bigcode.py`, `GPTBigCodeModel.bias`, and
`models/gpt_neo/modeling_gpt_neo.py`, `GPTNeoSelfAttention.bias`: booleans, a byte each."""


def causal_masks(workload: Workload) -> float:
    """Bytes of these buffers on each rank, which are never split."""
    model = workload.architecture
    if model.family in _ONCE:
        return float((model.context or 0) ** 2)
    if model.family in _EACH_LAYER:
        return float(sum(stack.layers for stack in model.stacks) * (model.context or 0) ** 2)
    return 0.0


def saves_whole(layout: Layout) -> bool:
    """Whether a checkpoint holds weights that are gathered from the ranks."""
    if layout.fsdp.version:
        return layout.fsdp.sharding != "none" and layout.fsdp.state_dict == "full"
    on_zero = layout.parallel.engine == "deepspeed" and layout.zero.stage == PARAMETERS
    return on_zero and layout.zero.gather_on_save


def saved(workload: Workload, plan: Sharding) -> Sizes:
    """What is whole while it goes to the host, in bytes: at most the largest.

    DeepSpeed gathers what a module has of its own (0.19.8 `runtime/engine.py`,
    `_zero3_consolidated_16bit_state_dict`), torch one parameter, and then one of its moments (2.13
    `distributed/_state_dict_utils.py`, `_gather_state_dict`), version 1 of FSDP a unit
    (`distributed/fsdp/_unshard_param_utils.py`, `_unshard_fsdp_state_params`). Traced.
    """
    if not _gathers(plan):
        return {}
    if plan.fsdp.version == 1:
        units = unit_sizes(workload, plan.fsdp, plan.states)
        return {"gathered parameters": max(size for size, _ in units)}
    wide = plan.fsdp.version and plan.counts.trained
    size = plan.parameter if wide else BYTES[plan.states.weights]
    counts = plan.whole
    largest = counts.largest_parameter if plan.fsdp.version else counts.largest_module
    second = {} if plan.fsdp.version else _made_again(plan)
    return {"gathered parameters": float(size * largest), **second}


def _made_again(plan: Sharding) -> Sizes:
    """Second shards, which the step has let go and each release makes anew (`second_shards`).

    The last is made before its parameter goes (deepspeed 0.19.8 `runtime/zero/
    partition_parameters.py`, `_partition_param_sec`); traced with a tied head and one of its own.
    """
    shards = 0.0 if plan.parameters_away else second_shards(plan)
    return {"second shards": shards} if shards else {}


def _gathers(plan: Sharding) -> bool:
    if plan.fsdp.version:
        return plan.fsdp.sharding != "none" and plan.fsdp.state_dict == "full"
    return plan.stage == PARAMETERS and plan.zero.gather_on_save


_SIDE: Final = {False: 192, True: 384}
"""Places on a side of the table of positions: 384 in SD3.5 medium, the one with second attentions,
192 in SD3 medium and 3.5 large (diffusers `scripts/convert_sd3_to_diffusers.py`)."""


def _positions(workload: Workload) -> int:
    """Elements of a buffer that is not part of any module of the architecture.

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
    terms: dict[str, float] = {}
    if workload.architecture.family == "SD3Transformer2DModel":
        terms["position table"] = float(BYTES[plan.states.weights] * _positions(workload))
    scales = scale_bytes(workload, plan) if plan.counts.quantized else 0.0
    if scales:
        terms["scales of packed weights"] = scales
    if plan.stage == PARAMETERS and not plan.fsdp.version:
        terms["persistent parameters"] = float(BYTES[plan.states.weights] * persistent(plan))
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


def encoders(workload: Workload, plan: Sharding) -> Sizes:
    """Models that encode captions and images before the trained model is loaded.

    An autoencoder works on one clip at a time, while the text encoders are still there (simpletuner
    4.10.1 `helpers/data_backend/factory.py`, `move_text_encoders`). What it works in for pictures
    is not counted.

    simpletuner 3.1.6 and 4.10.1 `helpers/training/trainer.py`, `Trainer.run`: `init_data_backend`
    fills the caches, `init_unload_text_encoder` and `init_unload_vae` unload the encoders,
    `init_load_base_model` comes after.
    """
    size, data = BYTES[plan.states.weights], workload.data
    there = {"text encoders and VAE": float(size * plan.counts.components)}
    found = workload.architecture.clip_encoder
    if found is None or not data.frames:
        return there
    elements = found.pixel + found.frame * data.frames
    pixels = data.image_width * data.image_height
    return {**there, "encoding of a clip": size * (found.parameters + elements * pixels)}


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

    trl 1.16 `models/utils.py`, `prepare_deepspeed`: any other stage becomes 0. It is stored as the
    trained one is: openrlhf 0.10.4 to 0.11.2 cli/train_dpo.py, load_in_4bit.
    """
    if workload.preference is None or workload.preference.reference != "resident":
        return 0
    counts = plan.counts
    packed = quantized_bytes(workload.quantization) * counts.quantized if counts.quantized else 0
    plain = BYTES[plan.states.weights] * (counts.base - counts.quantized)
    return plan.shard(plain + packed, PARAMETERS)


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
    """A quantised base, which each rank loads whole on its device before FSDP splits it.

    transformers 5.0.0 to 5.23.0 quantizers/quantizer_bnb_4bit.py `update_device_map`: the current
    device. 4.46.3 to 4.57.6 modeling_utils.py `_load_state_dict_into_meta_model` moves each weight
    to the host once it is packed, where FSDP loads efficiently.
    """
    version = workload.version("transformers")
    moves = version is not None and version < _KEEPS_ON_DEVICE and plan.fsdp.efficient_loading
    return {"whole base": 0.0 if moves else frozen_bytes(workload, plan)}


_KEEPS_ON_DEVICE: Final = Version("5.0")


def scale_bytes(workload: Workload, plan: Sharding) -> float:
    """Bytes of a packed weight that are not its parameter, and so are whole on each rank.

    bitsandbytes 0.50.2 `functional.py`, `QuantState`, which `nn/modules.py`, `Params4bit`, keeps as
    an attribute: neither FSDP nor ZeRO stage 3 splits it. Counted separately only if they split
    weights.
    """
    if plan.stage < PARAMETERS or workload.quantization.format not in FOUR_BIT:
        return 0.0
    return (quantized_bytes(workload.quantization) - PACKED) * plan.counts.quantized


def persistent(plan: Sharding) -> int:
    """Elements in parameters of at most `persistence_threshold`, which stay whole.

    deepspeed 0.19.8 `runtime/zero/parameter_offload.py`, `mark_persistent_parameters`; after a step
    they are gathered at once (`stage3.py`, `_post_step`). Most adapters are that small.
    """
    threshold, workload = plan.zero.persistence_threshold, plan.workload
    held = sum(total for size, total in plan.counts.sizes if size <= threshold)
    for module in workload.adapted:
        sizes = map(prod, adapter_shapes(workload, module))
        held += module.copies * sum(size for size in sizes if size <= threshold)
    return held
