"""Fields of TrainingArguments as random draws: values that the class of some release takes."""

from collections.abc import Mapping
from typing import Any, Final

from draws import BOTH, Drawn
from sections import ADAM
from tests.tables import table

TABLES = table(__file__)

OFTEN: Final[Drawn] = {
    "num_train_epochs": (1, 2, 3.0),
    "max_steps": (-1, 100),
    "lr_scheduler_type": ("linear", "cosine", "constant_with_warmup"),
    "warmup_steps": (0, 10),
    "max_grad_norm": (0.5, 1.0),
    "learning_rate": ADAM["lr"],
    "weight_decay": ADAM["weight_decay"],
    "adam_beta1": (0.9,),
    "adam_beta2": (0.95, 0.999),
    "adam_epsilon": ADAM["eps"],
    "logging_steps": (1, 10, 0.1),
    "save_strategy": ("no", "epoch", "steps"),
    "save_steps": (50, 0.5),
    "save_total_limit": (1, 3),
    "gradient_checkpointing": BOTH,
    "seed": (0, 42),
    "dataloader_num_workers": (0, 2),
    "dataloader_drop_last": BOTH,
    "optim": ("adamw_torch", "adamw_torch_fused", "sgd"),
    "report_to": ("none",),
    "remove_unused_columns": BOTH,
    "per_device_eval_batch_size": (1, 8),
}
"""What nearly every file has."""

_CADENCE: Final = ("no", "epoch", "steps")
SELDOM: Final[Drawn] = {
    "optim": ("adafactor", "adamw_bnb_8bit", "paged_adamw_8bit", "lion_32bit"),
    "optim_args": ("beta1=0.9", "", "rank=64,update_proj_gap=100"),
    "lr_scheduler_type": (
        *("polynomial", "inverse_sqrt", "cosine_with_restarts", "cosine_with_min_lr"),
        *("reduce_lr_on_plateau", "warmup_stable_decay", "constant"),
    ),
    "lr_scheduler_kwargs": (
        {},
        {"min_lr": 1e-6},
        {"num_cycles": 2},
        {"num_decay_steps": 10},
        '{"min_lr": 1e-6}',
    ),
    "eval_strategy": _CADENCE,
    "logging_strategy": _CADENCE,
    "eval_steps": (50, 0.5, 100),
    "eval_delay": (0, 1, 0.5),
    "eval_accumulation_steps": (4,),
    "load_best_model_at_end": BOTH,
    "metric_for_best_model": ("loss", "eval_loss", "accuracy"),
    "greater_is_better": BOTH,
    "warmup_ratio": (0.0, 0.03, 1.0),
    "label_smoothing_factor": (0.1,),
    "neftune_noise_alpha": (5, 5.0),
    "torch_compile": BOTH,
    "torch_compile_backend": ("inductor", "eager"),
    "torch_compile_mode": ("default", "reduce-overhead"),
    "dataloader_pin_memory": BOTH,
    "dataloader_persistent_workers": BOTH,
    "dataloader_prefetch_factor": (2, 4),
    "ddp_timeout": (1800, 5400),
    "ddp_find_unused_parameters": BOTH,
    "ddp_bucket_cap_mb": (25,),
    "ddp_broadcast_buffers": BOTH,
    "ddp_backend": ("nccl", "gloo"),
    "fsdp": ("", [], "full_shard", "full_shard auto_wrap"),
    "fsdp_config": ({}, None, {"transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}),
    "accelerator_config": (
        {"split_batches": False},
        {"dispatch_batches": None, "even_batches": True},
        {"use_seedable_sampler": True},
        {"non_blocking": True},
    ),
    "gradient_checkpointing_kwargs": ({"use_reentrant": False}, {}),
    "group_by_length": BOTH,
    "push_to_hub": BOTH,
    "hub_model_id": ("me/model",),
    "hub_strategy": ("every_save", "end"),
    "hub_private_repo": BOTH,
    "report_to": ("tensorboard", ["tensorboard"], [], "wandb", ["wandb", "none"]),
    "run_name": ("first",),
    "do_train": BOTH,
    "do_eval": BOTH,
    "prediction_loss_only": BOTH,
    "tf32": BOTH,
    "bf16_full_eval": BOTH,
    "fp16_full_eval": BOTH,
    "log_level": ("info", "passive"),
    "label_names": (["labels"],),
    "full_determinism": (False,),
    "data_seed": (1,),
    "debug": ("", "underflow_overflow"),
    "auto_find_batch_size": BOTH,
    "save_only_model": BOTH,
    "save_on_each_node": BOTH,
    "ignore_data_skip": BOTH,
    "resume_from_checkpoint": ("out/checkpoint-1",),
    "use_cpu": (False,),
    "include_num_input_tokens_seen": (True, False, "all"),
    "torch_empty_cache_steps": (1, 10),
    "disable_tqdm": BOTH,
    "optim_target_modules": ("all-linear", ["q_proj"]),
    "liger_kernel_config": ({"rope": True},),
    "use_liger_kernel": BOTH,
    "average_tokens_across_devices": BOTH,
    "project": ("p",),
    "parallelism_config": (None,),
    "fp16_opt_level": ("O1",),
    "half_precision_backend": ("auto",),
    "save_safetensors": BOTH,
    "train_sampling_strategy": ("random", "group_by_length"),
}
"""What few have, and what only some releases know."""

STRAY: Final[Mapping[str, Any]] = TABLES["STRAY"]
"""Fields of some releases only, of other programs and of nobody, each with a value."""
