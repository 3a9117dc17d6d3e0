"""With which release a field of TRL's classes came, and with which it went.

Between the releases whose schemas are known, and before them. Read from trainer/*_config.py of
trl 0.12.2 to 1.16.0, one release of each minor (1.1 and 1.2 apart, around which nothing changes);
fields of TrainingArguments, whose defaults alone a class changes, are left out.

And keys of classes that TRL's scripts had before: until 0.11 its PPOConfig was a class of its own
beside TrainingArguments (huggingface/trl v0.8.6 trainer/ppo_config.py); until July 2025 the recipes
of the alignment handbook were read by dataclasses of its own (huggingface/alignment-handbook v0.3.0
src/alignment/configs.py; 19f0345 reads them by TRL's).
"""

from collections.abc import Mapping
from functools import cache
from typing import Final

from packaging.version import Version

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL

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
        "0.22": (
            "beta cache_implementation dataset_num_proc disable_dropout epsilon epsilon_high "
            "generation_batch_size generation_kwargs local_rollout_forward_batch_size "
            "log_completions mask_truncated_completions max_completion_length max_prompt_length "
            "min_p missing_eos_penalty model_init_kwargs normalize_advantages "
            "num_completions_to_print num_generations num_iterations num_mini_batches "
            "num_sample_generations ref_model_mixup_alpha ref_model_sync_steps repetition_penalty "
            "response_length reward_weights shuffle_dataset steps_per_generation stop_token "
            "stop_token_id sync_ref_model temperature top_k top_p total_episodes "
            "use_transformers_paged use_vllm vllm_gpu_memory_utilization "
            "vllm_guided_decoding_regex vllm_mode vllm_model_impl vllm_server_base_url "
            "vllm_server_host vllm_server_port vllm_server_timeout vllm_tensor_parallel_size "
            "wandb_log_unique_prompts"
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


@cache
def _by_key(kind: str, *, gone: bool) -> Mapping[str, str]:
    """The release by field."""
    table = (_GONE if gone else _CAME).get(kind, {})
    return {key: release for release, keys in table.items() for key in keys.split()}


def not_yet(run: LintContext, kind: str, key: str) -> str | None:
    """The release that brought a field, where somebody names an earlier one."""
    came = _by_key(kind, gone=False).get(key)
    return came if came is not None and _is_before(run, came) else None


def no_more(run: LintContext, kind: str, key: str) -> str | None:
    """The release that took a field away, where somebody names that one or a later one."""
    gone = _by_key(kind, gone=True).get(key)
    return gone if gone is not None and _is_before(run, gone) is False else None


def _is_before(run: LintContext, release: str) -> bool | None:
    """Whether the release that somebody names is an earlier one; None where nobody names one."""
    held = run.release("trl")
    return Version(held.version.base_version) < Version(release) if held.is_named else None


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
"""Keys of that PPOConfig, and what each is called today (None: it was removed)."""
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
    """Since which releases of TRL a key is refused, and its name today; None: it is no such key."""
    if kind == "ppo" and key in PPO:
        return SINCE[key], PPO[key]
    if kind in TRL and key in HANDBOOK:
        return SINCE[key], HANDBOOK[key]
    return None
