"""Axolotl's keys that TRL's file cannot hold, and what TRL does instead."""

from typing import Any, Final

from tunec.compiler.consumers.moved_keys import gone, gone_unless, one_of
from tunec.targets.axolotl.migration import BUILDER, CONFIG, MODEL, TRL_SECTION
from tunec.targets.axolotl.rewards import OF_A_SERVER

_TRACKERS: Final = "axolotl 0.8.1 to 0.19.0 utils/schemas/integrations.py"

_INTEGRATIONS: Final = frozenset(
    {
        "axolotl.integrations.liger.LigerPlugin",
        "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin",
        "axolotl.integrations.kernels.KernelsPlugin",
        "axolotl.integrations.swanlab.SwanLabPlugin",
    }
)


def _computes_the_same(plugins: Any) -> bool:
    return isinstance(plugins, list) and _INTEGRATIONS.issuperset(map(str, plugins))


_TOKENIZER: Final = "the tokenizer is used as it was saved"
_KERNELS: Final = "PEFT computes the adapter's products: the same result, more slowly"
_SERVER: Final = "`trl vllm-serve` gets it when it is started"
_VARIABLES: Final = "the tracker's own variables say it"

_OF_TRACKERS: Final = (
    *("wandb_project", "wandb_entity", "wandb_watch", "wandb_run_id", "wandb_log_model"),
    *("wandb_mode", "mlflow_tracking_uri", "mlflow_experiment_name", "comet_project_name"),
    *("use_swanlab", "swanlab_project", "swanlab_experiment_name", "swanlab_description"),
    *("swanlab_mode", "swanlab_workspace", "swanlab_log_model", "swanlab_log_completions"),
    *("swanlab_completion_log_interval", "swanlab_completion_max_buffer", "use_otel_metrics"),
    *("otel_metrics_host", "otel_metrics_port"),
)
_OF_CLASSES: Final = ("model_type", "tokenizer_type", "processor_type", "type_of_model")

_FSDP: Final = "axolotl 0.13.2 to 0.19.0 utils/schemas/fsdp.py `FSDPConfig`"
_OF_FSDP: Final[tuple[tuple[str, str, tuple[Any, ...]], ...]] = (
    ("sync_module_states", "all processes begin with the weights of the first", (True, "true")),
    ("final_state_dict_type", "the last weights are saved as those of each checkpoint", ()),
    ("mixed_precision_policy", "FSDP casts as the Trainer's dtype says", ("bf16",)),
    ("cpu_offload_pin_memory", "memory of the host is pinned", (True,)),
)
_NOT_READ: Final = ("limit_all_gathers", "forward_prefetch", "backward_prefetch")
_IN_CONFIG: Final = (
    *(
        gone_unless(f"fsdp_config.{prefix}{name}", _FSDP, instead, *same)
        for name, instead, same in _OF_FSDP
        for prefix in ("", "fsdp_")
    ),
    *(
        gone(f"fsdp_config.{prefix}{name}", _FSDP, "Axolotl's classes have no such key")
        for name in _NOT_READ
        for prefix in ("", "fsdp_")
    ),
    *(
        gone(f"fsdp_config.{prefix}use_orig_params", _FSDP, "version 2 has no such switch")
        for prefix in ("", "fsdp_")
    ),
)

LEAVES: Final = (
    *_IN_CONFIG,
    *(gone(f"vllm.{key}", TRL_SECTION, _SERVER) for key in OF_A_SERVER),
    gone(
        "plugins",
        CONFIG,
        "their kernels compute the same; the loss is computed in pieces by TRL's own",
        changes_nothing=_computes_the_same,
    ),
    gone("cut_cross_entropy", CONFIG, "TRL computes the loss in pieces by its own"),
    gone("strict", CONFIG, "it is Axolotl's own check of its keys"),
    gone("dataset_prepared_path", CONFIG, "`datasets` keeps what it prepared in its cache"),
    gone("dataset_shard_num", CONFIG, "the cache is not cut into shards"),
    *(
        gone(key, MODEL, "the class is the one that the model's config names")
        for key in _OF_CLASSES
    ),
    *(gone(key, _TRACKERS, _VARIABLES) for key in _OF_TRACKERS),
    *(
        gone(key, CONFIG, _KERNELS)
        for key in ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "lora_embedding_kernel")
    ),
    *(
        gone(key, CONFIG, "the model's own experts run: the same result, more slowly")
        for key in ("use_scattermoe", "use_sonicmoe", "experts_implementation")
    ),
    *(
        gone(key, CONFIG, "the model's own kernels compute the same")
        for key in (
            *("use_kernels", "liger_rms_norm_gated", "liger_layer_norm", "flash_attn_rms_norm"),
            *("flash_attn_fuse_mlp", "flash_attn_cross_entropy", "flash_attn_fuse_qkv"),
            *("fused_attn_kernel", "flex_attn_compile_kwargs", "liger_fused_linear_cross_entropy"),
        )
    ),
    *(
        gone(key, CONFIG, "MLPs are run whole: the same, with more memory")
        for key in ("tiled_mlp", "tiled_mlp_num_shards", "tiled_mlp_use_original_mlp")
    ),
    gone(
        "ple_cpu_offload",
        "axolotl 0.19.0 loaders/model.py `_keep_no_placement_params_on_cpu`",
        "embeddings of layers lie on the device: the same, with more memory",
    ),
    gone_unless("min_sample_len", CONFIG, "short samples are used, too"),
    gone_unless(
        "nvfp4_merge_aware",
        "axolotl 0.19.0 integrations/kernels/plugin.py",
        "the sum of weights and adapter is not rounded to NVFP4 while training",
        False,
    ),
    gone("experimental_skip_move_to_device", CONFIG, "weights are read onto their device"),
    gone("low_cpu_mem_usage", CONFIG, "the library decides how weights are read"),
    gone("hf_use_auth_token", CONFIG, "the token of the hub is found by itself"),
    gone("tokenizer_use_fast", CONFIG, "the tokenizer's own class is used"),
    gone("debug", CONFIG, "it is a switch of Axolotl's log"),
    gone("ddp", CONFIG, "several processes run data-parallel by themselves"),
    gone("full_finetune", CONFIG, "without an adapter all is trained"),
    gone("gptq", CONFIG, "the checkpoint says how it is stored", changes_nothing=one_of(False)),
    gone("skip_prepare_dataset", CONFIG, "samples with images are prepared as they are read"),
    gone_unless(
        "pad_to_sequence_len", CONFIG, "samples are padded to the longest of their batch", False
    ),
    gone_unless(
        "chat_template", CONFIG, "the chat template of the tokenizer is used", "tokenizer_default"
    ),
    gone_unless("chat_template_kwargs", CONFIG, "the chat template has its own defaults"),
    gone_unless("eot_tokens", CONFIG, "the tokenizer's end of text ends a turn"),
    gone_unless("tokenizer_use_mistral_common", MODEL, _TOKENIZER, False),
    gone_unless("tokenizer_config", MODEL, _TOKENIZER),
    gone_unless("tokenizer_legacy", MODEL, _TOKENIZER),
    *(
        gone_unless(f"special_tokens.{name}", CONFIG, _TOKENIZER)
        for name in ("bos_token", "unk_token", "pad_token", "eos_token")
    ),
    *(
        gone_unless(f"tokens.{name}", CONFIG, _TOKENIZER)
        for name in ("bos_token", "unk_token", "pad_token", "eos_token")
    ),
    gone_unless(
        "eval_sample_packing", CONFIG, "samples to evaluate on are packed as those to train on"
    ),
    gone_unless("loss_watchdog_threshold", BUILDER, "no run is stopped for a high loss"),
    gone_unless("loss_watchdog_patience", BUILDER, "no run is stopped for a high loss"),
    gone_unless("early_stopping_patience", BUILDER, "no run is stopped early"),
    gone_unless("shuffle_merged_datasets", CONFIG, "data is shuffled while training", True),
    gone_unless("dataset_exact_deduplication", CONFIG, "samples that are there twice stay", False),
    gone_unless("auto_resume_from_checkpoints", CONFIG, "a run begins anew", False),
    gone_unless("device_map", MODEL, "weights lie on the device of their process"),
    gone_unless("quantize_moe_experts", MODEL, "experts stay in the dtype of the weights", False),
    gone_unless("lora_fan_in_fan_out", CONFIG, "PEFT knows how the layers are stored", False),
    gone_unless("max_packed_sequence_len", CONFIG, "sample packing has the length of sequences"),
    gone_unless("sample_packing_sequentially", CONFIG, "samples are packed in any order", False),
    gone_unless("curriculum_sampling", CONFIG, "samples come in any order", False),
    gone_unless("cosine_constant_lr_ratio", CONFIG, "the rate falls to the end", 0),
    gone_unless("model_config", MODEL, "the model's own config holds"),
    gone_unless("resize_token_embeddings_to_32x", MODEL, "embeddings keep their size", False),
    gone_unless("gemma4_hybrid_attn_impl", CONFIG, "one attention is used for all layers", False),
    gone_unless("dp_shard_size", CONFIG, "the launcher says how many devices there are", 1),
    gone_unless("dp_replicate_size", CONFIG, "the launcher says how many devices there are", 1),
    gone_unless("use_ray", CONFIG, "the launcher starts the processes", False),
    gone_unless("ray_num_workers", CONFIG, "the launcher starts the processes"),
    gone(
        "bf16", CONFIG, "auto is bf16, unless the devices have none", changes_nothing=one_of("auto")
    ),
    gone_unless("streaming_multipack_buffer_size", CONFIG, "samples are packed as they come"),
    gone_unless("eval_table_size", BUILDER, "no answers are shown", 0),
    gone_unless("eval_max_new_tokens", BUILDER, "no answers are written"),
    gone_unless("do_causal_lm_eval", BUILDER, "the loss alone is computed", False),
    gone_unless("eval_causal_lm_metrics", BUILDER, "the loss alone is computed"),
)
"""What TRL does without each of these keys."""
