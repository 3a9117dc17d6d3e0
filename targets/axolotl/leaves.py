"""Axolotl's keys that TRL's file cannot hold, and what TRL does instead."""

from typing import Any, Final

from tunec.compiler.consumers.moved_keys import Moved, gone, gone_unless, one_of
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


def _other(key: str, instead: str, source: str, *same: Any) -> Moved:
    """A key that TRL does not have; `same` are values with which TRL behaves equally."""
    return gone_unless(key, source, instead, *same)


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
        _other(f"fsdp_config.{prefix}{name}", instead, _FSDP, *same)
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
    _other("min_sample_len", "short samples are used, too", CONFIG),
    _other(
        "nvfp4_merge_aware",
        "the sum of weights and adapter is not rounded to NVFP4 while training",
        "axolotl 0.19.0 integrations/kernels/plugin.py",
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
    _other(
        "pad_to_sequence_len", "samples are padded to the longest of their batch", CONFIG, False
    ),
    _other(
        "chat_template", "the chat template of the tokenizer is used", CONFIG, "tokenizer_default"
    ),
    _other("chat_template_kwargs", "the chat template has its own defaults", CONFIG),
    _other("eot_tokens", "the tokenizer's end of text ends a turn", CONFIG),
    _other("tokenizer_use_mistral_common", _TOKENIZER, MODEL, False),
    _other("tokenizer_config", _TOKENIZER, MODEL),
    _other("tokenizer_legacy", _TOKENIZER, MODEL),
    *(
        _other(f"special_tokens.{name}", _TOKENIZER, CONFIG)
        for name in ("bos_token", "unk_token", "pad_token", "eos_token")
    ),
    *(
        _other(f"tokens.{name}", _TOKENIZER, CONFIG)
        for name in ("bos_token", "unk_token", "pad_token", "eos_token")
    ),
    _other("eval_sample_packing", "samples to evaluate on are packed as those to train on", CONFIG),
    _other("loss_watchdog_threshold", "no run is stopped for a high loss", BUILDER),
    _other("loss_watchdog_patience", "no run is stopped for a high loss", BUILDER),
    _other("early_stopping_patience", "no run is stopped early", BUILDER),
    _other("shuffle_merged_datasets", "data is shuffled while training", CONFIG, True),
    _other("dataset_exact_deduplication", "samples that are there twice stay", CONFIG, False),
    _other("auto_resume_from_checkpoints", "a run begins anew", CONFIG, False),
    _other("device_map", "weights lie on the device of their process", MODEL),
    _other("quantize_moe_experts", "experts stay in the dtype of the weights", MODEL, False),
    _other("lora_fan_in_fan_out", "PEFT knows how the layers are stored", CONFIG, False),
    _other("max_packed_sequence_len", "sample packing has the length of sequences", CONFIG),
    _other("sample_packing_sequentially", "samples are packed in any order", CONFIG, False),
    _other("curriculum_sampling", "samples come in any order", CONFIG, False),
    _other("cosine_constant_lr_ratio", "the rate falls to the end", CONFIG, 0),
    _other("model_config", "the model's own config holds", MODEL),
    _other("resize_token_embeddings_to_32x", "embeddings keep their size", MODEL, False),
    _other("gemma4_hybrid_attn_impl", "one attention is used for all layers", CONFIG, False),
    _other("dp_shard_size", "the launcher says how many devices there are", CONFIG, 1),
    _other("dp_replicate_size", "the launcher says how many devices there are", CONFIG, 1),
    _other("use_ray", "the launcher starts the processes", CONFIG, False),
    _other("ray_num_workers", "the launcher starts the processes", CONFIG),
    gone(
        "bf16", CONFIG, "auto is bf16, unless the devices have none", changes_nothing=one_of("auto")
    ),
    _other("streaming_multipack_buffer_size", "samples are packed as they come", CONFIG),
    _other("eval_table_size", "no answers are shown", BUILDER, 0),
    _other("eval_max_new_tokens", "no answers are written", BUILDER),
    _other("do_causal_lm_eval", "the loss alone is computed", BUILDER, False),
    _other("eval_causal_lm_metrics", "the loss alone is computed", BUILDER),
)
"""What TRL does without each of these keys."""
