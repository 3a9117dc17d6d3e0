"""With which release a key of Axolotl or LLaMA-Factory came.

Between the releases whose schemas are known, and before them. Read from the classes at every tag:
axolotl-ai-cloud/axolotl v0.8.1 to v0.18.0 src/axolotl/utils/schemas, hiyouga/LlamaFactory v0.5.0 to
v0.9.5 src/llmtuner/hparams and src/llamafactory/hparams.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final

from packaging.version import Version

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


@cache
def _came(kind: str) -> Mapping[str, str]:
    """The release by key."""
    table = {"axolotl": _AXOLOTL, "llamafactory": _LLAMAFACTORY}.get(kind, {})
    return {key: release for release, keys in table.items() for key in keys}


def came_later(run: LintContext, kind: str, key: str) -> str | None:
    """The release that brought a key, where somebody names an earlier one."""
    came = _came(kind).get(key)
    if came is None:
        return None
    release = run.release(kind)
    # 0.9.4.dev0 is what becomes 0.9.4, and may have the key already
    is_earlier = Version(release.version.base_version) < Version(came)
    return came if release.is_named and is_earlier else None
