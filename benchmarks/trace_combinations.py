"""The combinations of docs/memory-accuracy.md: architectures, each with several kinds of training.

A combination is plain data, which `subject` converts to the input of both the account and the
trace.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from trace_answers import WRITING, answers_of, evaluated
from trace_causes import (
    adapters_in_tiles,
    as_read,
    autocast_adapters,
    by_muon,
    encoder_decoder,
    few_inputs,
    flash_attention,
    gathered_again,
    narrow_scores,
    own_gelu,
    recomputed,
    repeated_values,
    texts_alone,
    tower_last,
    wide_head,
    wide_norms,
    wide_queries,
)
from trace_diffusion import denoisers
from trace_merged import MERGED, adapter_of, merged
from trace_models import BY_NAME, MODELS, Model, config_of
from trace_rewarded import REWARDED, generation_of, preference_of, rewarded
from trace_row import Combination
from trace_shared import FULLY_SHARDED, SHARED, flat, fully_sharded, in_one_bucket, shared

from tunec.compiler.analyses.architecture import derive, image_tokens, vision_tokens
from tunec.compiler.analyses.architecture.lora import takes_no_adapter
from tunec.compiler.analyses.memory.modules import is_stack
from tunec.compiler.analyses.memory.workload import USUAL_FSDP
from tunec.compiler.ir.slots import AttentionKernel, Quantization
from tunec.compiler.resolve import catalogued
from tunec.compiler.tracing.subject import Subject
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Architecture, Module
from tunec.schemas.models.catalogue import card

sys.path.append(str(Path(__file__).parents[1] / "tests/analyses/memory"))
from workload_builders import (  # type: ignore[import-not-found]
    BF16_LORA,
    FP32,
    MIXED,
    full,
    layout,
    lora,
    nf4,
)


def combinations() -> Iterator[Combination]:
    """Every row of the table, by architecture."""
    for model in MODELS:
        yield from _ROWS[model.kind](model)
        if model.name in WRITING:
            yield from evaluated(model)
        if model.name in REWARDED:
            yield from rewarded(model)
        if model.name in MERGED:
            yield from merged(model)


def _dense(model: Model) -> Iterator[Combination]:
    one = Combination(model.name)
    yield one
    yield replace(one, checkpointed=True, micro=2)
    yield replace(one, method="lora")
    yield replace(one, method="lora", checkpointed=True, micro=4, sequence=1024)
    yield from _EXTRA.get(model.name, lambda _: ())(one)
    if model.name in FULLY_SHARDED:
        yield from fully_sharded(one)
        yield from flat(one)
    if model.name in SHARED:
        yield from shared(one)


def _answers(one: Combination) -> Iterator[Combination]:
    """TRL's loss in tiles: over given texts, and over pairs beside each kind of reference."""
    one = replace(one, loss="chunked")
    yield replace(one, checkpointed=True)
    yield replace(one, method="lora")
    one = replace(one, packing=False)
    yield replace(one, method="lora", reference="base")
    yield replace(one, reference="resident", checkpointed=True)
    yield replace(one, reference="precomputed")


def _llama_8b(one: Combination) -> Iterator[Combination]:
    yield from _answers(one)
    yield replace(
        one,
        method="lora",
        states="mixed",
        engine="deepspeed",
        world=8,
        stage=2,
        checkpointed=True,
        packing=False,
        loss="chunked",
        reference="base",
    )
    yield replace(one, states="autocast", checkpointed=True)
    yield replace(one, states="fp32", checkpointed=True)
    yield replace(one, method="qlora", checkpointed=True)
    yield replace(one, method="qlora", states="kbit", checkpointed=True)
    yield replace(one, method="qlora", states="kbit")
    yield replace(one, method="int8", checkpointed=True)
    yield replace(one, method="lora", states="autocast", checkpointed=True)
    yield replace(one, method="lora", states="autocast")
    yield replace(one, method="lora", targets=("q_proj", "v_proj"), checkpointed=True)
    yield replace(one, method="lora", dropout=0.05)
    yield replace(one, method="lora", micro=2, packing=False, checkpointed=True)
    yield replace(one, method="lora", engine="ddp", world=8, checkpointed=True)
    for stage in (1, 2, 3):
        yield replace(
            one,
            method="lora",
            states="mixed",
            engine="deepspeed",
            world=8,
            stage=stage,
            checkpointed=True,
        )
        yield replace(
            one, states="mixed", engine="deepspeed", world=64, stage=stage, checkpointed=True
        )


def _llama_1b(one: Combination) -> Iterator[Combination]:
    yield from _answers(replace(one, sequence=4096))
    yield from adapters_in_tiles(one)
    pairs = replace(one, method="lora", sequence=4096, checkpointed=True, packing=False)
    sharded = replace(pairs, states="mixed", engine="deepspeed", world=8, stage=2)
    yield replace(sharded, loss="chunked", reference="base")
    yield replace(one, attention="eager", sequence=1024)
    yield replace(one, states="autocast")
    yield replace(one, states="autocast", checkpointed=True)
    yield replace(one, states="fp32")
    for name, kernel in (("adamw", "foreach"), ("adamw", "loop"), ("sgd", "foreach")):
        yield replace(one, optimizer=name, kernel=kernel, checkpointed=True)
    yield replace(one, optimizer="adamw_8bit", kernel="bitsandbytes", checkpointed=True)
    yield replace(one, optimizer="adafactor", kernel="own", checkpointed=True)
    yield replace(one, optimizer="lion", kernel="own", checkpointed=True)
    yield replace(one, accumulation=4, checkpointed=True)
    yield replace(one, accumulation=4, checkpointed=True, sequence=128)
    yield from by_muon(one)
    yield replace(one, micro=2, packing=False)
    yield replace(one, sequence=8192, checkpointed=True)
    yield from recomputed(replace(one, sequence=4096, checkpointed=True))
    yield replace(one, engine="ddp", world=2)
    mixed = replace(one, states="mixed", engine="deepspeed", world=4, checkpointed=True)
    for stage in (0, 1, 2, 3):
        yield replace(mixed, stage=stage)
        yield replace(mixed, stage=stage, accumulation=2)
    for stage in (1, 2):
        yield replace(mixed, stage=stage, zero={"reduce_bucket": 50_000_000, "overlap_comm": True})
        yield replace(mixed, stage=stage, states="mixed-fp32-gradients")
    yield replace(
        mixed,
        stage=3,
        zero={
            "max_live_parameters": 100_000_000,
            "max_reuse_distance": 100_000_000,
            "reduce_bucket": 4_194_304,
            "prefetch_bucket": 3_774_873,
        },
    )
    yield replace(mixed, stage=3, checkpointed=False)
    for stage in (2, 3):
        yield replace(mixed, stage=stage, kernel="foreach", sequence=512)
    paged = replace(one, optimizer="paged_adamw_32bit", kernel="bitsandbytes", states="fp32")
    yield replace(paged, checkpointed=True, sequence=512)
    narrow = replace(paged, optimizer="paged_adamw_8bit", states="bf16")
    yield replace(narrow, checkpointed=True, sequence=512)
    yield from few_inputs(one)
    for states in ("fp32", "autocast"):
        yield replace(one, states=states, checkpointed=True, loss="chunked")


def _sharded(one: Combination) -> Iterator[Combination]:
    for stage in (1, 2, 3):
        yield replace(
            one, states="mixed", engine="deepspeed", world=8, stage=stage, checkpointed=True
        )


def _quantised(one: Combination) -> Iterator[Combination]:
    yield replace(one, method="qlora", states="kbit", checkpointed=True)
    yield replace(one, method="int8", checkpointed=True)
    yield from _sharded(one)
    if one.model == "qwen2.5-7b":
        yield from adapters_in_tiles(one)


def _second_shards(one: Combination) -> Iterator[Combination]:
    yield from _sharded(one)
    sharded = replace(one, states="mixed", engine="deepspeed", world=8, stage=3, checkpointed=True)
    few = {"max_live_parameters": 1_000_000, "max_reuse_distance": 1_000_000}
    yield replace(sharded, zero={"hpz_partition": 2, **few})
    yield from in_one_bucket(replace(one, sequence=512))


def _few_and_flash(one: Combination) -> Iterator[Combination]:
    yield from few_inputs(one)
    yield from flash_attention(one)


_EXTRA: Final[dict[str, Any]] = {
    "llama-3.1-8b": _llama_8b,
    "llama-3.2-1b": _llama_1b,
    "qwen2.5-0.5b": _second_shards,
    "qwen2.5-7b": _quantised,
    "mistral-7b-v0.3": _quantised,
    "tinyllama-1.1b": _sharded,
    **dict.fromkeys(("phi-2", "starcoder2-3b", "pythia-1.4b", "opt-2.7b"), wide_norms),
    **dict.fromkeys(("olmo-1b", "lfm2-350m"), as_read),
    **dict.fromkeys(("smollm2-360m", "granite-3-2b", "gemma-3-1b"), autocast_adapters),
    "bloom-560m": own_gelu,
    "gpt2-xl": narrow_scores,
    "gpt-j-6b": wide_queries,
    "llama-3-70b": wide_head,
    "phi-4": repeated_values,
    "qwen3-0.6b": _few_and_flash,
}


def _moe(model: Model) -> Iterator[Combination]:
    one = Combination(model.name)
    yield one
    yield replace(one, checkpointed=True)
    lora_one = replace(one, method="lora", targets=("q_proj", "k_proj", "v_proj", "o_proj"))
    if "deepseek" in model.name:
        lora_one = replace(lora_one, targets=("q_proj", "kv_b_proj", "o_proj"))
    yield replace(lora_one, checkpointed=True)
    yield lora_one
    yield replace(one, states="mixed", engine="deepspeed", world=8, stage=2, checkpointed=True)
    yield replace(one, checkpointed=True, accumulation=2)
    if "deepseek" in model.name:
        yield replace(one, checkpointed=True, engine="fsdp", fsdp="full", world=8)
        yield replace(lora_one, micro=2, packing=False)
        yield from gathered_again(replace(lora_one, sequence=1024))
        return
    yield replace(one, states="mixed", engine="deepspeed", world=8, stage=3, checkpointed=True)
    whole = replace(lora_one, states="fsdp", engine="fsdp", world=8, sequence=1024)
    yield replace(whole, fsdp="grad_op")
    experts = ("experts.gate_up_proj", "experts.down_proj")
    yield replace(one, method="lora", targets=experts, checkpointed=True)


def _vlm(model: Model) -> Iterator[Combination]:
    one = Combination(model.name, sequence=512, packing=False)
    yield one
    yield replace(one, checkpointed=True)
    yield replace(one, method="lora", checkpointed=True)
    yield replace(one, method="lora")
    yield replace(one, states="mixed", engine="deepspeed", world=8, stage=2, checkpointed=True)
    if model.name in ("llava-1.5-7b", "llava-v1.6-mistral-7b", "gemma-3-4b"):
        # what a frozen tower keeps since its embedding is made to want a gradient
        yield replace(one, method="lora", states="autocast", checkpointed=True, micro=8)
    text = replace(one, text_only=True)
    yield text
    if "qwen" in model.name:
        yield replace(text, checkpointed=True, engine="fsdp", fsdp="full", world=8)
    if model.name == "qwen2.5-vl-3b":
        yield from texts_alone(text)
    if model.name == "internvl3-1b-hf":
        yield from tower_last(one)


_ROWS: Final = {
    "dense": _dense,
    "moe": _moe,
    "vision-language": _vlm,
    "encoder-decoder": encoder_decoder,
    "encoder": encoder_decoder,
    "diffusion": denoisers,
}
_STATES: Final[dict[tuple[str, str], dict[str, Any]]] = {
    ("full", "bf16"): {},
    ("full", "fp32"): FP32,
    ("full", "autocast"): FP32 | {"autocast": True},
    ("full", "fsdp"): BF16_LORA | {"autocast": True},
    ("adapter", "fsdp"): BF16_LORA | {"autocast": True},
    ("full", "mixed"): MIXED,
    ("full", "mixed-fp32-gradients"): MIXED | {"gradients": "fp32"},
    ("adapter", "bf16"): BF16_LORA,
    ("adapter", "bf16-adapters"): {},
    ("adapter", "autocast"): BF16_LORA | {"autocast": True},
    ("adapter", "autocast-bf16"): {"autocast": True},
    ("adapter", "kbit"): BF16_LORA | {"autocast": True, "weights": "fp32"},
    ("adapter", "mixed"): MIXED,
    ("adapter", "mixed-fp32-adapters"): MIXED | {"trainable": "fp32"},
}


def subject(row: Combination) -> Subject:
    """The input of the account and of the trace for a row."""
    model = BY_NAME[row.model]
    config = config_of(model)
    processor = card(row.model).processor if model.source.startswith("card") else {}
    paints = model.kind == "diffusion"
    architecture = catalogued(row.model).architecture if paints else derive(config, processor)
    options: dict[str, Any] = {
        "loss": row.loss,
        "preference": preference_of(row),
        "generation": generation_of(row),
        "sequence": row.sequence,
        "packing": row.packing,
        "name": row.optimizer,
        "kernel": row.kernel,
        "attention": AttentionKernel(_attention(row, architecture)),
        "evaluated": None if row.rewarded else answers_of(row, model),
        **({} if row.text_only else _images(model, architecture, row.pictures)),
    }
    method = "full" if row.method == "full" else "adapter"
    if method == "full":
        workload = full(architecture, **options)
    else:
        packed = replace(nf4(), storage="bf16") if row.fsdp else nf4()
        quantization = {"qlora": packed, "int8": Quantization("int8", False, "bf16", None)}
        if row.method in quantization:
            options["quantization"] = quantization[row.method]
        workload = lora(
            architecture, dropout=row.dropout, adapted=_adapted(row, architecture), **options
        )
        workload = replace(workload, adapter=adapter_of(row, workload.adapter))
    states = _STATES[method, row.states]
    if "8bit" in row.optimizer:
        states = states | {"optimizer": "int8"}
    plan = layout(
        row.micro,
        checkpointed=row.checkpointed,
        accumulation=row.accumulation,
        evaluation=row.micro,
        engine=row.engine,
        world=row.world,
        stage=row.stage,
        tensor=row.tensor,
        sequence=row.ulysses,
        data=row.world // (row.tensor * row.ulysses),
        reentrant=row.reentrant,
        segment=row.segment,
        gap=row.gap,
        offload=row.offload,
        **states,
        **row.zero,
    )
    if row.fsdp:
        shards = replace(USUAL_FSDP, sharding=row.fsdp, checkpointing=row.checkpointed)
        shards = replace(shards, version=row.version, backward_prefetch=row.prefetch)
        shards = replace(shards, offload_params=row.moved)
        plan = replace(plan, fsdp=shards, nodes=row.nodes)
    return Subject(config, workload, plan)


def _attention(row: Combination, architecture: Architecture) -> Any:
    """Eager where the model caps its scores, as `choose_attention` decides."""
    return "eager" if any(stack.softcap for stack in architecture.stacks) else row.attention


def _adapted(row: Combination, architecture: Architecture) -> tuple[Module, ...]:
    parts = ("text", "denoiser")
    inside = [
        m
        for m in architecture.modules
        if (m.kind == "linear" or is_stack(m)) and m.part in parts and "{}" in m.path
    ]
    if row.targets:
        return tuple(m for m in inside if m.path.endswith(row.targets))
    linear = (m for m in inside if m.kind == "linear")
    return tuple(m for m in linear if not takes_no_adapter(architecture, m))


def _images(model: Model, architecture: Architecture, beside: int) -> dict[str, Any]:
    if model.kind == "diffusion":
        side = 512 if "v1-5" in model.name else 1024
        tokens = beside * (side // architecture.latent_scale // architecture.latent_patch) ** 2
        sizes = {"image_width": side, "image_height": side}
        return {"images": 1 + beside, **sizes, "image_tokens": tokens}
    if model.kind != "vision-language" or architecture.images is None:
        return {}
    side = architecture.images.image_size or 448
    return {
        "images": 1,
        "image_width": side,
        "image_height": side,
        "image_tokens": image_tokens(architecture.images, side, side),
        "vision_tokens": sum(vision_tokens(architecture.images, side, side)),
    }
