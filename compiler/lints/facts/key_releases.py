"""The releases of Axolotl, LLaMA-Factory or TRL that added or removed a key.

Between the releases whose schemas are known, and before them. Read from the classes at every tag:
axolotl-ai-cloud/axolotl v0.8.1 to v0.18.0 src/axolotl/utils/schemas, hiyouga/LlamaFactory v0.5.0 to
v0.9.5 src/llmtuner/hparams and src/llamafactory/hparams.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from packaging.version import Version

from tunec.compiler.consumers.schemas import class_schema, known_releases
from tunec.compiler.lints.document import TRL, Document
from tunec.compiler.lints.effective import releases_around
from tunec.compiler.lints.environment import Release
from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace

if TYPE_CHECKING:
    from tunec.compiler.lints.context import LintContext

_AXOLOTL: Final[Mapping[str, tuple[str, ...]]] = {
    "0.9.0": ("eot_tokens", "flex_attn_compile_kwargs", "ring_attn_func"),
    "0.9.1": ("adam_beta3", "adam_epsilon2", "embeddings_skip_upcast"),
    "0.10.0": (
        *("chat_template_kwargs", "dpo_label_smoothing", "dpo_norm_loss", "dpo_padding_free"),
        *("qat", "quantization", "tokenizer_use_mistral_common"),
    ),
    "0.11.0": (
        *("chunked_cross_entropy", "chunked_cross_entropy_num_chunks"),
        *("dpo_generate_during_eval", "eval_sequence_len", "sample_packing_mp_start_method"),
        *("tiled_mlp", "tiled_mlp_num_shards"),
    ),
    "0.12.0": (
        *("activation_offloading", "attn_implementation", "context_parallel_size"),
        *("deepcompile", "dion_lr", "dion_momentum", "dion_rank_fraction"),
        *("dion_rank_multiple_of", "dp_replicate_size", "dp_shard_size"),
        *("experimental_skip_move_to_device", "fp8_enable_fsdp_float8_all_gather"),
        *("fsdp_version", "jagged_restart_anneal_steps", "jagged_restart_steps"),
        *("jagged_restart_warmup_steps", "lora_target_parameters", "model_quantization_config"),
        *("model_quantization_config_kwargs", "num_dataset_shards_to_save"),
        *("profiler_steps_start", "relora", "save_first_step"),
        *("shuffle_before_merging_datasets", "tiled_mlp_use_original_mlp", "trainer_cls"),
        *("use_kernels",),
    ),
    "0.12.2": ("excess_length_strategy",),
    "0.13.0": (
        *("center_rewards_coefficient", "dataset_num_proc", "dynamic_checkpoint"),
        *("include_tkps", "otel_metrics_host", "otel_metrics_port"),
        *("peft_trainable_token_indices", "reinit_weights", "streaming"),
        *("streaming_multipack_buffer_size", "tokenizer_save_jinja_files", "use_otel_metrics"),
    ),
    "0.13.1": (
        *("dpo_use_liger_kernel", "peft_autocast_adapter_dtype", "peft_ensure_weight_tying"),
        *("scaling_softmax", "scaling_softmax_bias", "scaling_softmax_factor"),
        *("trackio_project_name", "trackio_run_name", "trackio_space_id", "use_trackio"),
    ),
    "0.14.0": ("eaft_alpha", "eaft_k", "experts_implementation", "use_eaft"),
    "0.15.0": (
        *("generate_samples", "generation_do_sample", "generation_max_new_tokens"),
        *("generation_prompt_ratio", "generation_temperature", "generation_top_k"),
        *("generation_top_p", "hub_revision", "num_generation_samples", "quantize_moe_experts"),
        *("sage_attention",),
    ),
    "0.16.0": (
        *("ebft", "layer_offloading", "lora_embedding_kernel", "merge_method"),
        *("precompute_ref_log_probs",),
    ),
    "0.17.0": (
        *("dpo_loss_type", "dpo_loss_weights", "fp32_norm_classes", "fp32_norms"),
        *("freeze_mm_modules", "fused_attn_kernel", "gc_collect_steps"),
        *("gemma4_hybrid_attn_impl", "pad_to_multiple_of", "processor_kwargs"),
        *("qgalore_cos_threshold", "qgalore_gamma_proj", "qgalore_proj_bits"),
        *("qgalore_proj_group_size", "qgalore_proj_quant", "qgalore_proj_type"),
        *("qgalore_queue_size", "qgalore_rank", "qgalore_scale", "qgalore_update_proj_gap"),
        *("relora_prune_method", "role_boundaries", "torch_empty_cache_steps"),
        *("use_onebitllms",),
    ),
    "0.18.0": (
        *("flash_attn_d512", "large_head_attention", "lora_alpha_pattern", "lora_rank_pattern"),
        *("sdpa_varlen", "selective_checkpointing", "torch_compile_options"),
    ),
}
_LLAMAFACTORY: Final[Mapping[str, tuple[str, ...]]] = {
    "0.5.2": ("print_param_status", "use_llama_pro", "use_rslora"),
    "0.5.3": ("use_dora",),
    "0.6.0": (
        *("galore_layerwise", "galore_proj_type", "galore_rank", "galore_scale"),
        *("galore_target", "galore_update_interval", "infer_backend", "loraplus_lr_embedding"),
        *("loraplus_lr_ratio", "offload_folder", "packing", "pure_bf16", "use_galore"),
        *("vllm_enforce_eager", "vllm_gpu_util", "vllm_maxlen"),
    ),
    "0.6.1": ("dpo_label_smoothing",),
    "0.6.2": ("moe_aux_loss_coef", "quantization_device_map", "tokenized_path"),
    "0.6.3": (
        *("badam_mask_mode", "badam_mode", "badam_start_block", "badam_switch_mode"),
        *("badam_update_ratio", "badam_verbose", "export_device", "mixture_of_depths"),
        *("use_badam",),
    ),
    "0.7.0": ("new_special_tokens",),
    "0.7.1": (
        *("badam_switch_interval", "freeze_extra_modules", "freeze_trainable_layers"),
        *("freeze_trainable_modules",),
    ),
    "0.8.0": (
        *("default_system", "freeze_vision_tower", "kto_chosen_weight", "kto_rejected_weight"),
        *("pref_beta", "pref_ftx", "pref_loss", "simpo_gamma", "train_from_scratch"),
        *("train_mm_proj_only", "vllm_max_lora_rank"),
    ),
    "0.8.2": ("adapter_folder", "infer_dtype", "pissa_convert", "pissa_init", "pissa_iter"),
    "0.8.3": (
        *("compute_accuracy", "eval_dataset", "mask_history", "neat_packing"),
        *("quantization_method", "tool_format"),
    ),
    "0.9.0": (
        *("enable_liger_kernel", "image_resolution", "preprocessing_batch_size"),
        *("use_adam_mini", "use_unsloth_gc", "video_fps", "video_maxlen", "video_resolution"),
    ),
    "0.9.1": (
        *("image_dir", "include_effective_tokens_per_second", "om_hub_token", "vllm_config"),
    ),
    "0.9.2": (
        *("apollo_layerwise", "apollo_proj", "apollo_proj_type", "apollo_rank", "apollo_scale"),
        *("apollo_scale_front", "apollo_scale_type", "apollo_target", "apollo_update_interval"),
        *("disable_shuffling", "freeze_language_model", "freeze_multi_modal_projector"),
        *("image_max_pixels", "image_min_pixels", "media_dir", "placement_strategy"),
        *("ray_num_workers", "ray_run_name", "ray_storage_path", "resources_per_worker"),
        *("skip_special_tokens", "swanlab_api_key", "swanlab_logdir", "swanlab_mode"),
        *("swanlab_project", "swanlab_run_name", "swanlab_workspace", "trust_remote_code"),
        *("use_apollo", "use_reentrant_gc", "use_swanlab", "video_max_pixels"),
        *("video_min_pixels",),
    ),
    "0.9.3": (
        *("add_special_tokens", "add_tokens", "audio_sampling_rate", "crop_to_patches"),
        *("data_shared_file_system", "early_stopping_steps", "enable_thinking"),
        *("eval_on_each_dataset", "image_do_pan_and_scan", "ld_alpha", "ray_init_kwargs"),
        *("ray_storage_filesystem", "sglang_config", "sglang_lora_backend", "sglang_maxlen"),
        *("sglang_mem_fraction", "sglang_tp_size", "swanlab_lark_secret"),
        *("swanlab_lark_webhook_url", "use_audio_in_video", "use_muon"),
    ),
    "0.9.4": (
        *("fp8", "fp8_backend", "fp8_enable_fsdp_float8_all_gather", "init_special_tokens"),
        *("module_dropout", "new_special_tokens_config", "oft_block_size", "oft_rank"),
        *("oft_target", "pref_bco_weight", "use_dft_loss", "use_kt", "use_kv_cache", "use_mca"),
        *("use_v1_kernels",),
    ),
    "0.9.5": (
        *("asft_alpha", "eaft_alpha", "enable_torch_profiler", "hyper_parallel_args"),
        *("kt_expert_checkpoint_path", "kt_lora_expert_intermediate_size"),
        *("kt_lora_expert_num", "kt_use_lora_experts", "kt_weight_path", "master_addr"),
        *("master_port", "preserve_thinking", "profile_modules", "profiler_active_steps"),
        *("profiler_output_dir", "profiler_profile_memory", "profiler_record_shapes"),
        *("profiler_repeat", "profiler_wait_steps", "profiler_warmup_steps"),
        *("profiler_with_stack", "use_asft_loss", "use_eaft_loss", "use_hyper_parallel"),
    ),
}


@cached()
def _came(kind: str) -> Mapping[str, str]:
    """The release by key."""
    table = {"axolotl": _AXOLOTL, "llamafactory": _LLAMAFACTORY}.get(kind, {})
    return {key: release for release, keys in table.items() for key in keys}


def came_later(run: "LintContext", kind: str, key: str) -> str | None:
    """The release that added a key, if an earlier one is named."""
    came = _came(kind).get(key)
    if came is None:
        return None
    return came if run.release(kind).is_before(came) else None


_CAME: Final[Mapping[str, Mapping[str, str]]] = {
    "sft": {
        "0.16": "max_length pad_token padding_free",
        "0.17": "completion_only_loss eos_token",
        "0.18": "activation_offloading pad_to_multiple_of",
        "0.19": "assistant_only_loss chat_template_path packing_strategy",
        "0.23": "loss_type",
        "0.26": "shuffle_dataset",
        "1.0": "truncation_mode",
        "1.7": "router_aux_loss_coef",
    },
    "dpo": {
        "0.13": "discopop_tau precompute_ref_batch_size use_num_logits_to_keep",
        "0.14": "padding_free tools",
        "0.15": "use_logits_to_keep",
        "0.18": "ld_alpha",
        "0.19": "base_model_attribute_name use_liger_loss",
        "0.20": "loss_weights",
        "0.24": "pad_token",
        "0.29": "activation_offloading pad_to_multiple_of",
        "1.8": "router_aux_loss_coef",
    },
    "grpo": {
        "0.15": (
            "ds3_gather_for_generation log_completions ref_model_mixup_alpha "
            "ref_model_sync_steps reward_weights sync_ref_model vllm_dtype vllm_max_model_len"
        ),
        "0.16": (
            "cache_implementation epsilon epsilon_high min_p num_iterations repetition_penalty "
            "scale_rewards top_k top_p vllm_enable_prefix_caching vllm_guided_decoding_regex "
            "vllm_server_host vllm_server_port vllm_server_timeout"
        ),
        "0.17": (
            "disable_dropout loss_type mask_truncated_completions num_completions_to_print "
            "shuffle_dataset use_liger_loss wandb_log_unique_prompts"
        ),
        "0.18": (
            "delta generation_batch_size steps_per_generation vllm_mode vllm_server_base_url "
            "vllm_tensor_parallel_size"
        ),
        "0.19": "generation_kwargs",
        "0.20": "importance_sampling_level top_entropy_quantile use_transformers_paged",
        "0.21": "vllm_model_impl",
        "0.23": (
            "vllm_enable_sleep_mode vllm_importance_sampling_cap "
            "vllm_importance_sampling_correction"
        ),
        "0.25": "cast_lm_head_to_fp32 chat_template_kwargs",
        "0.26": (
            "log_unique_prompts num_generations_eval sapo_temperature_neg sapo_temperature_pos "
            "use_bias_correction_kl vllm_importance_sampling_mode vllm_max_model_length"
        ),
        "0.27": (
            "max_tool_calling_iterations multi_objective_aggregation off_policy_mask_threshold "
            "vllm_group_port vllm_structured_outputs_regex"
        ),
        "0.28": "log_completions_hub_repo",
        "1.0": "pad_to_multiple_of vespo_k_neg vespo_k_pos vespo_lambda_neg vespo_lambda_pos",
        "1.6": "vllm_importance_sampling_clip_max vllm_importance_sampling_clip_min",
        "1.7": (
            "router_aux_loss_coef transformers_continuous_batching_config "
            "use_transformers_continuous_batching"
        ),
        "1.8": (
            "entropy_coef entropy_coef_delta entropy_coef_max entropy_coef_min entropy_target "
            "use_adaptive_entropy"
        ),
        "1.9": "log_multimodal",
    },
    "rloo": {
        "0.10": "dataset_num_proc",
        "0.11": "missing_eos_penalty",
        "0.22": (
            "beta cache_implementation disable_dropout epsilon epsilon_high generation_batch_size "
            "generation_kwargs log_completions mask_truncated_completions max_completion_length "
            "max_prompt_length min_p model_init_kwargs normalize_advantages "
            "num_completions_to_print num_generations num_iterations ref_model_mixup_alpha "
            "ref_model_sync_steps repetition_penalty reward_weights shuffle_dataset "
            "steps_per_generation sync_ref_model top_k top_p use_transformers_paged use_vllm "
            "vllm_gpu_memory_utilization vllm_guided_decoding_regex vllm_mode vllm_model_impl "
            "vllm_server_base_url vllm_server_host vllm_server_port vllm_server_timeout "
            "vllm_tensor_parallel_size wandb_log_unique_prompts"
        ),
        "0.24": "vllm_enable_sleep_mode",
        "0.25": "chat_template_kwargs",
        "0.26": "log_unique_prompts num_generations_eval",
        "0.27": "vllm_group_port vllm_max_model_length vllm_structured_outputs_regex",
        "1.0": "pad_to_multiple_of",
        "1.7": (
            "router_aux_loss_coef transformers_continuous_batching_config "
            "use_transformers_continuous_batching"
        ),
        "1.9": "log_multimodal",
    },
    "reward": {
        "0.14": "disable_dropout",
        "0.24": (
            "activation_offloading chat_template_path eos_token model_init_kwargs "
            "pad_to_multiple_of pad_token"
        ),
    },
}
_GONE: Final[Mapping[str, Mapping[str, str]]] = {
    "sft": {
        "0.18": "chars_per_token dataset_batch_size num_of_sequences use_liger",
        "0.20": "max_seq_length",
    },
    "dpo": {
        "0.14": "max_target_length",
        "0.15": "is_encoder_decoder",
        "0.17": "use_num_logits_to_keep",
        "0.26": "padding_value",
        "0.28": "use_liger_loss",
        "0.29": (
            "base_model_attribute_name force_use_ref_model generate_during_eval "
            "label_pad_token_id max_completion_length max_prompt_length model_adapter_name "
            "ref_adapter_name ref_model_init_kwargs reference_free rpo_alpha tools "
            "use_logits_to_keep"
        ),
    },
    "grpo": {
        "0.18": "vllm_device vllm_dtype vllm_enable_prefix_caching vllm_max_model_len",
        "0.27": "wandb_log_unique_prompts",
        "0.28": "max_prompt_length use_liger_loss vllm_guided_decoding_regex",
    },
    "rloo": {
        "0.22": "normalize_advantage reward_model_path whiten_rewards",
        "0.25": (
            "cliprange dataset_num_proc kl_coef local_rollout_forward_batch_size "
            "missing_eos_penalty normalize_reward num_mini_batches num_ppo_epochs "
            "num_sample_generations response_length rloo_k stop_token stop_token_id "
            "token_level_kl total_episodes"
        ),
        "0.27": "wandb_log_unique_prompts",
        "0.28": "vllm_guided_decoding_regex",
        "0.29": "max_prompt_length",
    },
    "reward": {},
}


@cached()
def _by_key(kind: str, *, gone: bool) -> Mapping[str, str]:
    """The release by field."""
    table = (_GONE if gone else _CAME).get(kind, {})
    return {key: release for release, keys in table.items() for key in keys.split()}


def not_yet(run: "LintContext", kind: str, key: str) -> str | None:
    """The release that added a field, if an earlier one is named."""
    came = _by_key(kind, gone=False).get(key)
    return came if came is not None and run.release("trl").is_before(came) else None


def no_more(run: "LintContext", kind: str, key: str) -> str | None:
    """The release that removed a field, if that one or a later one is named."""
    gone = _by_key(kind, gone=True).get(key)
    return gone if gone is not None and run.release("trl").is_before(gone) is False else None


PPO: Final[Mapping[str, str | None]] = {
    "ppo_epochs": "num_ppo_epochs",
    "init_kl_coef": "kl_coef",
    "kl_penalty": "kl_estimator",
    "log_with": "report_to",
    "steps": "total_episodes",
    **dict.fromkeys(
        (
            *("adap_kl_ctrl", "horizon", "forward_batch_size", "optimize_cuda_cache"),
            *("optimize_device_cache", "early_stopping", "target_kl", "compare_steps"),
            *("ratio_threshold", "use_score_scaling", "use_score_norm", "score_clip"),
            *("tracker_project_name", "tracker_kwargs", "accelerator_kwargs", "query_dataset"),
        )
    ),
}
"""Keys of that PPOConfig, with their names today (None: removed)."""
HANDBOOK: Final[Mapping[str, str | None]] = {
    "use_flash_attention_2": "attn_implementation",
    "dataset_mixer": "dataset_mixture",
    "preprocessing_num_workers": "dataset_num_proc",
    "auto_insert_empty_system_msg": None,
    "dataset_splits": None,
}
SINCE: Final[Mapping[str, str]] = {
    **dict.fromkeys(PPO, "trl>=0.12"),
    **dict.fromkeys(HANDBOOK, "trl>=0.19"),
}
"""The releases of TRL whose scripts refuse each."""


def former(kind: str, key: str) -> tuple[str, str | None] | None:
    """Since which releases of TRL a key is refused, and its name today; None if it is not."""
    if kind == "ppo" and key in PPO:
        return SINCE[key], PPO[key]
    if kind in TRL and key in HANDBOOK:
        return SINCE[key], HANDBOOK[key]
    return None


_STEM: Final = "training_arguments"


def no_older_than_its_keys(release: Release, documents: Iterable[Document]) -> Release:
    """The assumed release of transformers, or the newest if files have a later key."""
    if release.is_named:
        return release
    said = {
        key for each in documents if each.kind in ("hf", *TRL) for key in each.root.fields or ()
    }
    known = tuple(map(Version, known_releases(_STEM)))
    told = said & _fields_of(known[-1])
    lacking = [each for each in known if not told <= _fields_of(each)]
    if not lacking:
        return release
    if release.among:
        among = tuple(each for each in release.among if each > lacking[-1]) or release.among
        return replace(release, version=among[-1], among=among)
    taken = known[-1] if told - _fields_of(release.version) else release.version
    return replace(release, version=taken, after=lacking[-1])


def _fields_of(release: Version) -> frozenset[str]:
    """The fields that a release may have: between two known ones, those of either."""
    around = releases_around(_STEM, str(release))
    return frozenset(key for each in around for key in class_schema(_STEM, each)["properties"])
