"""Two keys that Axolotl refuses together."""

from collections.abc import Iterator
from itertools import combinations
from typing import Final

from tunec.compiler.lints.axolotl.asked import configs
from tunec.compiler.lints.conditions import Pair, refused_beside, refused_pair, where
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_LOSSES: Final = (
    "cut_cross_entropy",
    "chunked_cross_entropy",
    "liger_cross_entropy",
    "liger_fused_linear_cross_entropy",
)
_KERNELS: Final = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel")
_SWITCHES: Final = (
    "flash_attention",
    "sdp_attention",
    "xformers_attention",
    "sage_attention",
    "flex_attention",
    "eager_attention",
)
_IN_ORDER: Final = (
    *("xformers_attention", "sage_attention", "flex_attention", "flash_attention"),
    *("sdp_attention", "eager_attention", "s2_attention"),
)
"""axolotl 0.19.0 utils/schemas/enums.py LEGACY_ATTN_FLAG_TO_IMPL: the first that is set holds."""
_UNPACKED: Final = "axolotl<0.10"
_MISTRAL: Final = (
    "chat_template",
    "special_tokens",
    "tokens",
    "added_tokens_overrides",
    "processor_kwargs",
)
_FROM_ONE: Final = "each follows from the other"
_NOT_SHARDED: Final = "its trainer does not shard quantised weights by FSDP2"
_FIRST: Final = "only the first process has quantised weights then"
_RING: Final = "the ring packs one row"

_PAIRS: Final[tuple[Pair, ...]] = tuple(
    Pair(*row)
    for row in (
        ("sample_packing", "rl", "packing does not work with preference methods", ""),
        ("eval_sample_packing", "rl=kto", "packing does not work with preference methods", ""),
        ("batch_flattening=true", "sample_packing", "both do the same", ""),
        ("warmup_ratio", "warmup_steps", _FROM_ONE, ""),
        ("warmup_ratio", "rl=simpo", "its trainer takes warmup_steps only", ""),
        ("save_steps", "saves_per_epoch", _FROM_ONE, ""),
        ("eval_steps", "evals_per_epoch", _FROM_ONE, ""),
        ("test_datasets", "val_set_size", "the second takes from the training data", ""),
        ("val_set_size", "pretraining_dataset", "a stream cannot be split", "axolotl>=0.13"),
        ("val_set_size", "streaming", "a stream cannot be split", "axolotl>=0.13"),
        ("include_tokens_per_second", "pretraining_dataset", "a stream cannot be counted", ""),
        ("batch_size", "gradient_accumulation_steps", _FROM_ONE, ""),
        ("gpu_memory_limit", "max_memory", "the second says it for each device", ""),
        ("noisy_embedding_alpha", "neftune_noise_alpha", "the second is its new name", ""),
        ("loraplus_lr_ratio", "lr_groups", "both make groups of parameters", ""),
        ("flash_attn_fuse_mlp", "adapter", "fused modules have no projections for LoRA", ""),
        ("flash_attn_fuse_mlp", "relora", "fused modules have no projections for LoRA", ""),
        ("use_onebitllms", "adapter", "weights of 1.58 bits are trained in full", "axolotl>=0.19"),
        ("eval_sample_packing", "do_causal_lm_eval", "its samples are generated one by one", ""),
        ("load_in_4bit", "model_quantization_config", "each quantises the base", "axolotl>=0.13"),
        ("load_in_8bit", "model_quantization_config", "each quantises the base", "axolotl>=0.13"),
        ("revision_of_model", "gptq", "a branch of a GPTQ model is loaded from disk", ""),
        ("deepspeed", "relora", "a restart resets the optimizer's states", ""),
        ("fsdp", "relora", "a restart resets the optimizer's states", ""),
        ("fsdp_config", "relora", "a restart resets the optimizer's states", ""),
        ("lr_scheduler=one_cycle", "relora", "restarts have their own schedule", ""),
        ("unfrozen_parameters", "adapter & peft_layers_to_transform", "both choose layers", ""),
        ("flash_optimum & bf16", "flash_optimum", "BetterTransformer takes no mixed precision", ""),
        ("flash_optimum & fp16", "flash_optimum", "BetterTransformer takes no mixed precision", ""),
        ("gradient_checkpointing", "base_model~mpt", "MPT cannot recompute", ""),
        ("fsdp", "base_model~falcon", "Falcon is not sharded by FSDP", ""),
        (
            "lora_dropout",
            "lora_target_parameters",
            "PEFT wraps parameters without dropout",
            "axolotl>=0.19",
        ),
        (
            "lora_target_linear",
            "quantize_moe_experts",
            "experts are no linear layers",
            "axolotl>=0.19",
        ),
        ("ple_cpu_offload", "fsdp_config", "both place the parameters", "axolotl>=0.19"),
        ("ple_cpu_offload", "deepspeed", "both place the parameters", "axolotl>=0.19"),
        *(
            (f"{bits} & fsdp_version=2", f"rl={method}", _NOT_SHARDED, "axolotl>=0.13")
            for bits in ("load_in_4bit", "load_in_8bit")
            for method in ("dpo", "kto", "orpo", "ipo")
        ),
        (
            "fsdp_config.cpu_ram_efficient_loading & fsdp_version=2",
            "load_in_4bit",
            _FIRST,
            "axolotl>=0.19",
        ),
        (
            "fsdp_config.cpu_ram_efficient_loading",
            "model_quantization_config=Mxfp4Config",
            _FIRST,
            "axolotl>=0.19",
        ),
        ("micro_batch_size>1 & sample_packing", "context_parallel_size>1", _RING, "axolotl>=0.13"),
        ("micro_batch_size>1 & sample_packing", "sequence_parallel_degree>1", _RING, ""),
        ("optimizer=muon", "deepspeed", "Muon needs whole matrices", ""),
        (
            "optimizer~flash_",
            "deepspeed",
            "flash optimizers run under DDP and FSDP2 only",
            "axolotl>=0.19",
        ),
        ("optimizer=q_galore_adamw8bit", "deepspeed", "it needs whole gradients", "axolotl>=0.19"),
        (
            "optimizer=q_galore_adamw8bit",
            "adapter",
            "it projects gradients of full weights",
            "axolotl>=0.19",
        ),
        ("optimizer=polora", "deepspeed", "it needs whole factors", "axolotl>=0.19"),
        *(
            (each, "trust_remote_code", "the kernels patch known classes", "axolotl>=0.19")
            for each in _KERNELS
        ),
        *(
            (each, "attn_implementation", "the second is its new form", "axolotl>=0.19")
            for each in _SWITCHES
        ),
        *(
            (
                each,
                "tokenizer_use_mistral_common",
                "its tokenizer cannot be changed",
                "axolotl>=0.13",
            )
            for each in _MISTRAL
        ),
        *((a, b, "each replaces the loss", "axolotl>=0.13") for a, b in combinations(_LOSSES, 2)),
    )
)
"""Refused where both conditions hold."""


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        for pair in _PAIRS:
            yield from refused_pair(run, document, pair)
        yield from _table(run, document)
        yield from _attentions(run, document)


def _attentions(run: Run, document: Document) -> Iterator[Finding]:
    """Several kernels, or one that could not pack before 0.10."""
    found = [at for key in _IN_ORDER if (at := where(document, key))]
    if len(found) > 1:
        first, *rest = found
        yield Finding(
            f"{rest[0].path} cannot stand beside {first.path}",
            (rest[0].label("refused, or not used"), first.label("", primary=False)),
            (f"before 0.19 only one must be set; from it on {first.path} is taken and said",),
            "keep one of them",
            severity=None if run.runs("axolotl<0.19") else "warning",
            consequence=None if run.runs("axolotl<0.19") else "silent",
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


def _table(run: Run, document: Document) -> Iterator[Finding]:
    """A table of samples beside a packed evaluation."""
    shown, packed = where(document, "eval_table_size"), where(document, "sample_packing")
    if shown is None or packed is None or document.value("eval_sample_packing") is False:
        return
    why = "samples of a packed evaluation cannot be shown"
    yield refused_beside(run, shown, packed, (why, ""))


RULE = Rule(
    name="refused-pair",
    severity="error",
    consequence="parse",
    consumers=("axolotl",),
    sources=(
        (
            "axolotl 0.8.1 utils/schemas/config.py, 0.13.2 and 0.19.0 utils/schemas/validation.py, "
            "config.py, peft.py: the ValueErrors of its validators, such as `check_warmup`, "
            "`check_saves`, `check_evals`, `check_eval_packing`, `check_relora`, "
            "`check_cross_entropy_conflicts`, `normalize_attn_implementation`, "
            "`check_muon_deepspeed_fsdp`, `check_lora_kernels_8bit`"
        ),
        (
            "axolotl 0.8.1 utils/schemas/config.py `check_sample_packing_w_xformers`, 0.8.1 and "
            "0.13.2 `check_attention_fields`: Only one of ... must be set"
        ),
    ),
    check=_check,
)
