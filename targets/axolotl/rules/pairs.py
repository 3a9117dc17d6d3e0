"""Rules about keys that Axolotl refuses together."""

from collections.abc import Iterator
from itertools import combinations
from typing import Final

from tunec.compiler.lints.conditions import (
    check_pair,
    first_keys,
    is_checked,
    pairs,
    refused_beside,
    where,
)
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.training_loop import KERNELS, configs
from tunec.compiler.lints.rule import Finding, keys, rule
from tunec.schemas.frozen import replace

_LOSSES: Final = (
    *("cut_cross_entropy", "chunked_cross_entropy", "liger_cross_entropy"),
    "liger_fused_linear_cross_entropy",
)
_IN_ORDER: Final = (
    *("xformers_attention", "sage_attention", "flex_attention", "flash_attention"),
    *("sdp_attention", "eager_attention", "s2_attention"),
)
"""axolotl 0.19.0 utils/schemas/enums.py LEGACY_ATTN_FLAG_TO_IMPL: the first flag that is set
applies."""
_SWITCHES: Final = tuple(each for each in _IN_ORDER if each != "s2_attention")
_UNPACKED: Final = "axolotl<0.10"
_MISTRAL: Final = (
    *("chat_template", "special_tokens", "tokens", "added_tokens_overrides", "processor_kwargs"),
)
_KERNEL_TWICE: Final = "each replaces the same layers"
_LIGER: Final = "plugins~liger"
_NO_IPO: Final = "the fused loss has no IPO"
_UNTRAINED: Final = "it updates the factors of the adapter and nothing else"
_NO_GROUPS: Final = "torchao's optimizers take one group of parameters"
_OWN_RATES: Final = "it sets the step of each factor itself"
_BESIDE_FACTORS: Final = (
    *("lora_modules_to_save", "unfrozen_parameters", "peft_use_dora", "reward_model"),
    *("peft_trainable_token_indices", "lisa_step_interval", "process_reward_model"),
)
_RATES: Final = ("loraplus_lr_ratio", "lr_groups", "embedding_lr", "embedding_lr_scale")
_FUSED: Final = "fused modules have no projections for LoRA"
_RESET: Final = "a restart resets the optimizer's states"
_BESIDE_RESTARTS: Final = (
    *(("deepspeed", _RESET), ("fsdp", _RESET)),
    ("lr_scheduler=one_cycle", "restarts have their own schedule"),
    *(("flash_attn_fuse_qkv", _FUSED), ("flash_attn_fuse_mlp", _FUSED)),
)
"""Settings refused beside ReLoRA: axolotl 0.8.1 to 0.11.0 `check_relora`. There `relora_steps`
turns ReLoRA on, from 0.12 `relora`."""
_FROM_ONE: Final = "each follows from the other"
_NOT_SHARDED: Final = "its trainer does not support quantised weights under FSDP2"
_FIRST: Final = "only the first process has quantised weights then"
_RING: Final = "ring attention packs a single row"
_EXPERTS: Final = "plugins~kernels"
_ONE_BACKEND: Final = "experts use a single backend"
_STRIDED: Final = "rl=ebft & ebft.mode=strided"

_PAIRS: Final = (
    *pairs(
        "axolotl>=0.12,<0.15",
        *((each, "optimizer=adamw_torch_8bit|adamw_torch_4bit", _NO_GROUPS) for each in _RATES),
    ),
    *pairs(
        "",
        ("sample_packing", "rl", "packing does not work with preference methods"),
        ("eval_sample_packing", "rl=kto", "packing does not work with preference methods"),
        ("batch_flattening=true", "sample_packing", "both flatten batches"),
        ("warmup_ratio", "warmup_steps", _FROM_ONE),
        ("warmup_ratio", "rl=simpo", "its trainer takes warmup_steps only"),
        ("save_steps", "saves_per_epoch", _FROM_ONE),
        ("eval_steps", "evals_per_epoch", _FROM_ONE),
        ("test_datasets", "val_set_size", "the second splits the training data"),
        ("include_tokens_per_second", "pretraining_dataset", "a stream cannot be counted"),
        ("batch_size", "gradient_accumulation_steps", _FROM_ONE),
        ("gpu_memory_limit", "max_memory", "the second sets it for each device"),
        ("noisy_embedding_alpha", "neftune_noise_alpha", "the second is its new name"),
        ("loraplus_lr_ratio", "lr_groups", "both make groups of parameters"),
        ("flash_attn_fuse_mlp", "adapter", _FUSED),
        ("flash_attn_fuse_mlp", "relora", _FUSED),
        ("eval_sample_packing", "do_causal_lm_eval", "its samples are generated one by one"),
        ("revision_of_model", "gptq", "a branch of a GPTQ model is loaded from disk"),
        ("deepspeed", "relora", _RESET),
        ("fsdp", "relora", _RESET),
        ("fsdp_config", "relora", _RESET),
        ("lr_scheduler=one_cycle", "relora", "restarts have their own schedule"),
        ("unfrozen_parameters", "adapter & peft_layers_to_transform", "both select layers"),
        (
            "flash_optimum & bf16|fp16",
            "flash_optimum",
            "BetterTransformer does not support mixed precision",
        ),
        ("gradient_checkpointing", "base_model~mpt", "MPT does not support it"),
        ("fsdp", "base_model~falcon", "FSDP cannot shard Falcon"),
        ("micro_batch_size>1 & sample_packing", "sequence_parallel_degree>1", _RING),
        ("optimizer=muon", "deepspeed", "Muon needs unsharded matrices"),
        (
            "fsdp & no fsdp_config.use_orig_params|fsdp_config.fsdp_use_orig_params=true",
            "fsdp_config & plugins~spectrum",
            "frozen and trained weights would be one flat parameter",
        ),
        (
            "optimizer~8bit & no fsdp_version=2 & no fsdp_config.fsdp_version=2",
            "fsdp_config.offload_params=true",
            "8-bit states stay on the device",
        ),
    ),
    *pairs(
        "axolotl>=0.10",
        ("load_in_4bit", "qat", "quantised weights cannot be trained"),
        ("load_in_8bit", "qat", "quantised weights cannot be trained"),
        ("peft", "qat", "weights under an adapter are not trained"),
        (f"liger_swiglu & {_LIGER}", "liger_glu_activation", "the second is its new name"),
    ),
    *pairs(
        "axolotl>=0.10,<0.16",
        *((each, "rl", "the kernels only supported the SFT trainer") for each in KERNELS),
    ),
    *pairs(
        "axolotl>=0.10,<0.17", ("s2_attention", "sample_packing", "it ignores the ends of samples")
    ),
    *pairs(
        "axolotl>=0.13",
        (
            "trl.use_liger_loss & rl=grpo",
            "context_parallel_size>1",
            "Liger's loss needs whole answers",
        ),
    ),
    *pairs("axolotl<0.12", *((a, "relora_steps", b) for a, b in _BESIDE_RESTARTS)),
    *pairs(
        "axolotl>=0.12",
        ("load_in_4bit", "model_quantization_config", "each quantises the base"),
        ("load_in_8bit", "model_quantization_config", "each quantises the base"),
        *(
            (f"{bits} & fsdp_version=2", f"rl={method}", _NOT_SHARDED)
            for bits in ("load_in_4bit", "load_in_8bit")
            for method in ("dpo", "kto", "orpo", "ipo")
        ),
        ("fsdp_config.cpu_ram_efficient_loading", "model_quantization_config=Mxfp4Config", _FIRST),
        ("chunked_cross_entropy", "plugins~cut_cross", "each replaces the loss"),
        ("micro_batch_size>1 & sample_packing", "context_parallel_size>1", _RING),
        (
            f"tiled_mlp & {_LIGER} & no tiled_mlp_use_original_mlp=true",
            "liger_glu_activation",
            "each replaces the feed-forward layers",
        ),
        (f"liger_rms_norm & {_LIGER}", "tensor_parallel_size>1", "linkedin/Liger-Kernel#826"),
        (
            f"liger_fused_linear_cross_entropy & {_LIGER}",
            "tensor_parallel_size>1",
            "the loss needs the whole vocabulary",
        ),
    ),
    *pairs(
        "axolotl>=0.12,<0.16",
        *((each, "peft_use_dora", "the kernels did not support DoRA") for each in KERNELS),
    ),
    *pairs("axolotl<0.13", ("torch_compile", "deepspeed", "it is requested in the DeepSpeed file")),
    *pairs(
        "axolotl>=0.13",
        ("val_set_size", "pretraining_dataset", "a stream cannot be split"),
        ("val_set_size", "streaming", "a stream cannot be split"),
        ("dataset_exact_deduplication", "streaming", "samples of a stream cannot be compared"),
        (
            "dataset_exact_deduplication",
            "pretraining_dataset",
            "samples of a stream cannot be compared",
        ),
        (
            "pretrain_multipack_buffer_size",
            "streaming_multipack_buffer_size",
            "the second is its new name",
        ),
        ("trl.multi_objective_aggregation=sum_then_normalize", "rl=gdpo", "only GRPO has that sum"),
        *(
            (each, "tokenizer_use_mistral_common", "its tokenizer cannot be changed")
            for each in _MISTRAL
        ),
        *((a, b, "each replaces the loss") for a, b in combinations(_LOSSES, 2)),
    ),
    *pairs(
        "axolotl>=0.15",
        ("lora_dropout", "lora_target_parameters", "PEFT supports no dropout for parameters"),
        ("lora_target_linear", "quantize_moe_experts", "experts are no linear layers"),
        *((each, "trust_remote_code", "the kernels patch known classes") for each in KERNELS),
        (f"use_sonicmoe & {_EXPERTS}", "use_scattermoe", _ONE_BACKEND),
        (
            "dataset_exact_deduplication",
            "skip_prepare_dataset",
            "samples are compared where they are prepared",
        ),
    ),
    *pairs(
        "axolotl>=0.16",
        ("optimizer~flash_", "deepspeed", "flash optimizers run under DDP and FSDP2 only"),
        (
            "torch_compile=true & gradient_checkpointing",
            _STRIDED,
            "recomputed masks differ from the compiled ones",
        ),
        (
            "activation_offloading=true & attn_implementation=flex_attention|flex",
            _STRIDED,
            "offloading replaces recomputation",
        ),
    ),
    *pairs(
        "axolotl<0.17",
        *((each, f"unsloth_{each.removesuffix('_kernel')}", _KERNEL_TWICE) for each in KERNELS),
    ),
    *pairs(
        "axolotl>=0.17",
        ("use_onebitllms", "adapter", "1.58-bit weights are trained in full"),
        ("optimizer=q_galore_adamw8bit", "deepspeed", "it needs unsharded gradients"),
        ("optimizer=q_galore_adamw8bit", "adapter", "it projects the gradients of full weights"),
        (
            "gemma4_hybrid_attn_impl & attn_implementation!=flash_attention_2",
            "attn_implementation",
            "sliding windows use FlashAttention",
        ),
        *((each, "attn_implementation", "the second replaces it") for each in _SWITCHES),
    ),
    *pairs(
        "axolotl>=0.18",
        (
            "selective_checkpointing",
            "gradient_checkpointing_kwargs.use_reentrant",
            "only the non-reentrant kind selects what to keep",
        ),
        (
            "selective_checkpointing & activation_offloading!=hidden_states",
            "activation_offloading",
            "offloading replaces recomputation",
        ),
        (
            "unfrozen_parameters & activation_offloading=hidden_states",
            "gradient_checkpointing_kwargs.use_reentrant",
            "inputs of frozen layers have no gradient",
        ),
        *(
            (f"use_{each}=true & {_EXPERTS}", f"expert_backend!={each}", _ONE_BACKEND)
            for each in ("scattermoe", "sonicmoe")
        ),
        *(
            (
                f"{each}=true & {_EXPERTS}",
                "nvfp4_merge_aware=true",
                "the kernels bypass the adapter",
            )
            for each in KERNELS
        ),
        (
            "lora_target_modules|lora_target_linear & no lora_exclude_modules",
            f"use_dsv4_kernels & {_EXPERTS}",
            "the fused indexer has no gradient",
        ),
    ),
    *pairs(
        "axolotl>=0.19",
        (
            "qat.activation_dtype!=int8",
            "qat.weight_dtype=ternary",
            "ternary weights only support int8 activations",
        ),
        ("ple_cpu_offload", "fsdp_config", "both decide where parameters are"),
        ("ple_cpu_offload", "deepspeed", "both decide where parameters are"),
        ("fsdp_config.cpu_ram_efficient_loading & fsdp_version=2", "load_in_4bit", _FIRST),
        ("optimizer=polora", "deepspeed", "it needs unsharded factors"),
        ("optimizer=polora", "tensor_parallel_size>1", "it needs unsharded factors"),
        ("relora_steps", "optimizer=polora", "its momentum would outlive each merge"),
        ("dpo_use_liger_kernel", "rl=ipo", _NO_IPO),
        ("dpo_use_liger_kernel", "dpo_loss_type~['ipo'", _NO_IPO),
        (
            "fp8_enable_fsdp_float8_all_gather",
            "fp8_config.recipe=rowwise",
            "gathered weights have a single scale",
        ),
        *((each, "optimizer=polora", _UNTRAINED) for each in _BESIDE_FACTORS),
        *((each, "optimizer=polora", _OWN_RATES) for each in _RATES),
    ),
)
"""Pairs of conditions that are refused together."""


@rule(
    "error",
    "parse",
    consumers=("axolotl",),
    reads=(
        *first_keys("axolotl", _PAIRS),
        *keys(
            "axolotl",
            *_IN_ORDER,
            "sample_packing",
            "eval_table_size",
            "tensor_parallel_size",
            "beta",
            "gradient_checkpointing_kwargs.use_reentrant",
        ),
    ),
)
def refused_pair(run: LintContext) -> Iterator[Finding]:
    """Axolotl refuses two keys together."""
    for document in configs(run):
        for pair in _PAIRS:
            yield from check_pair(run, document, pair)
        yield from _table(run, document)
        yield from _attentions(run, document)
        yield from _packed_streams(run, document)
        yield from _betas(document)
        yield from _tied(run, document)
        yield from _in_processes(run, document)


def _attentions(run: LintContext, document: Document) -> Iterator[Finding]:
    """Several attention kernels are requested, or one that could not pack before 0.10."""
    found = [at for key in _IN_ORDER if (at := where(document, key))]
    if len(found) > 1:
        first, *rest = found
        yield Finding(
            f"{rest[0].path} cannot stand beside {first.path}",
            (rest[0].label("refused, or not used"), first.label("", primary=False)),
            (f"before 0.17 only one must be set; from it on {first.path} is taken and said",),
            "keep one of them",
            severity=None if run.runs("axolotl<0.17") else "warning",
            consequence=None if run.runs("axolotl<0.17") else "silent",
        )
    packed, old = where(document, "sample_packing"), where(document, "xformers_attention")
    if packed is not None and old is not None and run.runs(_UNPACKED) is not False:
        yield Finding(
            "sample_packing cannot stand beside xformers_attention before Axolotl 0.10",
            (packed.label("refused"), old.label("", primary=False)),
            ("sample_packing not compatible with xformers_attention. Use flash_attention",),
            "use flash_attention, or a later release",
            severity=None if run.runs(_UNPACKED) else "warning",
        )


def _table(run: LintContext, document: Document) -> Iterator[Finding]:
    """A table of samples is requested beside a packed evaluation."""
    shown, packed = where(document, "eval_table_size"), where(document, "sample_packing")
    if shown is None or packed is None or document.value("eval_sample_packing") is False:
        return
    why = "samples of a packed evaluation cannot be shown"
    yield refused_beside(run, shown, packed, (why, ""))


def _packed_streams(run: LintContext, document: Document) -> Iterator[Finding]:
    stream, packed = where(document, "streaming"), where(document, "sample_packing")
    named = document.value("datasets")
    is_several = isinstance(named, list) and len(named) > 1
    if stream is not None and packed is not None and is_several and is_checked(run, _STREAMS):
        yield refused_beside(run, packed, stream, ("of one data set only", _STREAMS))


def _tied(run: LintContext, document: Document) -> Iterator[Finding]:
    """Tensor parallelism is requested for a model whose head is tied to its embedding."""
    wide, model = where(document, "tensor_parallel_size>1"), document.get("base_model")
    card = run.model.card if run.model is not None else None
    is_tied = card is not None and card.config.get("tie_word_embeddings") is True
    if wide is not None and model is not None and is_tied and is_checked(run, _SINCE_TIED):
        found = refused_beside(run, wide, model, ("its tie_word_embeddings is true", _SINCE_TIED))
        yield replace(found, consequence="load", help="remove tensor_parallel_size")


def _betas(document: Document) -> Iterator[Finding]:
    at, inner = where(document, "beta"), where(document, "trl.beta")
    if at is not None and inner is not None and at.value != inner.value:
        yield _of_two_numbers(at, inner)


def _of_two_numbers(at: Place, inner: Place) -> Finding:
    """The finding for two numbers for the weight of the reference."""
    return Finding(
        f"{at.path} {at.value} cannot stand beside {inner.path} {inner.value}",
        (at.label("refused"), inner.label("", primary=False)),
        ("both are the weight of the reference",),
        f"keep {inner.path}",
    )


def _in_processes(run: LintContext, document: Document) -> Iterator[Finding]:
    """Findings for settings that a run of several processes cannot use."""
    world = run.world.value if run.world is not None else None
    at = where(document, "gradient_checkpointing_kwargs.use_reentrant & gradient_checkpointing")
    method = where(document, "rl & adapter=qlora & load_in_4bit")
    is_several = isinstance(world, int) and world > 1
    if at is not None and method is not None and is_several and is_checked(run, _SINCE_RL):
        yield refused_beside(run, at, method, (f"with {world} processes over QLoRA", _SINCE_RL))


_SINCE_TIED: Final = "axolotl>=0.12"
_STREAMS: Final = "axolotl>=0.13"
_SINCE_RL: Final = "axolotl>=0.11"
