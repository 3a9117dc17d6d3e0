"""Whose script flags are given to: transformers' examples, a maker's, or a fork's own package."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.frontend.shell_references import OF_EXAMPLES
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place

_PACKAGE: Final = re.compile(r"(?:\A|/)(\w+)/train/\w+\.py\Z")


def packages(run: LintContext, document: Document) -> frozenset[str]:
    """The packages whose scripts are started with the flags: `llava` of `llava/train/train.py`."""
    found = (_PACKAGE.search(program(place)) for place in _scripts(run, document))
    return frozenset(each[1] for each in found if each)


def starts_one_of(run: LintContext, document: Document, programs: re.Pattern[str]) -> bool:
    """Whether the flags' own file starts a script of such a path."""
    return any(programs.search(program(place)) for place in _scripts(run, document))


def example_of(run: LintContext, document: Document) -> Place | None:
    """Where the script of the flags' own file starts an example, if it starts no other script."""
    scripts = list(_scripts(run, document))
    found = [place for place in scripts if OF_EXAMPLES.search(program(place))]
    return found[0] if found and len(found) == len(scripts) else None


def starts_an_example(run: LintContext, document: Document) -> bool:
    """Whether flags are those of an example of transformers."""
    return document.format == "shell" and example_of(run, document) is not None


def _scripts(run: LintContext, document: Document) -> Iterator[Place]:
    for each in run.of("launch"):
        place = each.get("script")
        if each.name == document.name and place is not None:
            yield place


def program(place: Place) -> str:
    """The path of the script that a launcher starts."""
    words = place.value if isinstance(place.value, list) else [place.value]
    return str(words[0]) if words else ""


_OF_BOTH: Final = frozenset(
    {
        *("add_bos", "add_seed_and_date_to_exp_name", "additional_model_arguments"),
        *("cache_dataset_only", "chat_template_name", "checkpointing_steps", "clip_grad_norm"),
        *("config_name", "dataset_cache_mode", "dataset_config_hash", "dataset_config_name"),
        *("dataset_local_cache_dir", "dataset_mix_dir", "dataset_mixer", "dataset_mixer_list"),
        *("dataset_mixer_list_splits", "dataset_name", "dataset_skip_cache"),
        *("dataset_target_columns", "dataset_transform_fn", "do_not_randomize_output_dir"),
        *("exp_name", "fused_optimizer", "get_tokenizer_fn", "gradient_accumulation_steps"),
        *("gradient_checkpointing", "ground_truths_key", "gs_bucket_path", "hf_entity"),
        *("hf_metadata_dataset", "hf_repo_id", "hf_repo_revision", "hf_repo_url"),
        *("keep_last_n_checkpoints", "learning_rate", "load_balancing_loss"),
        *("load_balancing_weight", "logging_steps", "lora_alpha", "lora_dropout", "lora_rank"),
        *("low_cpu_mem_usage", "lr_scheduler_type", "max_seq_length", "max_train_samples"),
        *("max_train_steps", "model_name_or_path", "model_revision", "num_train_epochs"),
        *("oe_eval_max_length", "oe_eval_tasks", "output_dir", "overwrite_cache"),
        *("overwrite_output_dir", "packing", "per_device_train_batch_size"),
        *("preprocessing_num_workers", "push_to_hub", "reduce_loss", "report_to"),
        *("resume_from_checkpoint", "revision", "run_name", "save_to_hub", "seed"),
        *("sft_messages_key", "sync_each_batch", "timeout", "tokenizer_commit_hash"),
        *("tokenizer_files_hash", "tokenizer_name", "tokenizer_name_or_path"),
        *("tokenizer_revision", "train_file", "trust_remote_code", "try_auto_save_to_beaker"),
        *("try_launch_beaker_eval_jobs", "use_8bit_optimizer", "use_fast", "use_flash_attn"),
        *("use_liger_kernel", "use_lora", "use_qlora", "use_slow_tokenizer", "wandb_entity"),
        *("wandb_project_name", "warmup_ratio", "weight_decay", "with_tracking"),
    }
)
_OF_TUNING: Final = frozenset(
    {
        *("clean_checkpoints_at_end", "final_lr_ratio", "llama2", "save_merged_lora_model"),
        *("sequence_parallel_size", "verbose"),
    }
)
_OF_PREFERENCES: Final = frozenset(
    {
        *("activation_memory_budget", "attn_backend", "attn_implementation", "beta"),
        *("cache_logprobs_only", "cache_mode", "compile_model", "concatenated_forward"),
        *("config_hash", "context_parallel_degree", "dpo_beta", "dpo_gamma_beta_ratio"),
        *("dpo_label_smoothing", "dpo_loss_type", "dpo_use_paged_optimizer", "eval_priority"),
        *("eval_workspace", "fsdp_num_replicas", "fsdp_shard_degree", "gamma_beta_ratio"),
        *("label_smoothing", "local_cache_dir", "loss_type", "max_grad_norm", "mixer_list"),
        *("mixer_list_splits", "num_epochs", "num_replicas", "oe_eval_gpu_multiplier"),
        *("offload_optimizer", "offload_param", "optimizer_kwargs", "optimizer_type"),
        *("pipeline_parallel_degree", "profiling", "send_slack_alerts", "shard_degree"),
        *("skip_cache", "target_columns", "tensor_parallel_degree", "transform_fn"),
        *("use_paged_optimizer", "wandb_project", "zero_hpz_partition_size", "zero_stage"),
    }
)
_STARCODER: Final = frozenset(
    {
        *("model_path", "dataset_name", "subset", "split", "size_valid_set", "streaming"),
        *("shuffle_buffer", "input_column_name", "output_column_name", "seq_length", "max_steps"),
        *("batch_size", "gradient_accumulation_steps", "eos_token_id", "lora_r", "lora_alpha"),
        *("lora_dropout", "learning_rate", "lr_scheduler_type", "num_warmup_steps"),
        *("weight_decay", "local_rank", "no_fp16", "bf16", "no_gradient_checkpointing", "seed"),
        *("num_workers", "output_dir", "log_freq", "eval_freq", "save_freq"),
    }
)
OF_STARCODER: Final = re.compile(r"(?:\A|/)finetune/finetune\.py\Z")
"""bigcode-project/starcoder d72c7fe finetune/finetune.py `get_args`."""
OF_OPEN_INSTRUCT: Final = re.compile(
    r"(?:\A|/)open_instruct/(?:finetune|dpo_tune(?:_cache)?)\.py\Z"
)
"""allenai/open-instruct, all revisions up to e6c3044: `FlatArguments`, `DPOExperimentConfig`,
`TokenizerConfig`, and the flags that were argparse's before them."""

OWN_PARSERS: Final[Mapping[str, tuple[re.Pattern[str], frozenset[str]]]] = {
    "Open Instruct": (
        re.compile(r"(?:\A|/)open_instruct/finetune\.py\Z"),
        _OF_BOTH | _OF_TUNING,
    ),
    "Open Instruct, for preferences,": (
        re.compile(r"(?:\A|/)open_instruct/dpo_tune(?:_cache)?\.py\Z"),
        _OF_BOTH | _OF_PREFERENCES,
    ),
    "StarCoder": (OF_STARCODER, _STARCODER),
}
"""Scripts by path, with the flags that their parsers have."""

OF_TRL: Final = re.compile(r"(?:\A|/)(?:examples|trl)/scripts/(?:sft|dpo)\.py\Z")
BESIDE_TRL: Final = frozenset(
    {
        *("attn_implementation", "bnb_4bit_quant_storage", "bnb_4bit_quant_type", "config"),
        *("dataset_config", "dataset_name", "dataset_streaming", "dataset_test_split"),
        *("dataset_train_split", "datasets", "dtype", "generate_during_eval"),
        *("gradient_checkpointing_use_reentrant", "ignore_bias_buffers", "load_in_4bit"),
        *("load_in_8bit", "lora_alpha", "lora_dropout", "lora_modules_to_save", "lora_r"),
        *("lora_target_modules", "lora_target_parameters", "lora_task_type", "model_name_or_path"),
        *("model_revision", "sanity_check", "streaming", "test_split_size", "torch_dtype"),
        *("trust_remote_code", "use_bnb_nested_quant", "use_dora", "use_peft", "use_rslora"),
        "env",
    }
)
"""trl 0.10.1, 0.27.2, 1.16.0 ModelConfig, ScriptArguments, DatasetMixtureConfig,
DPOScriptArguments: what TRL's own scripts read beside its config; `config`, `env`: TrlParser."""
