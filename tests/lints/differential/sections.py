"""Sections of a ds_config.json as random draws: values that the sections' readers take."""

from collections.abc import Mapping
from typing import Any, Final

from draws import BOTH, Block, Drawn

ADAM: Final[Drawn] = {
    "lr": (1e-5, 5e-5, 1e-3),
    "betas": ([0.9, 0.999], [0.9, 0.95]),
    "eps": (1e-8, 1e-6),
    "weight_decay": (0.0, 0.1),
}
_OF_ADAM: Final[Drawn] = {
    "bias_correction": BOTH,
    "adam_w_mode": BOTH,
    "torch_adam": BOTH,
    "amsgrad": (False,),
}
_ONE_BIT: Final[Drawn] = {
    "freeze_step": (400,),
    "cuda_aware": (False,),
    "comm_backend_name": ("nccl", "mpi"),
}
OPTIMIZERS: Final[Mapping[str, Drawn]] = {
    "Adam": _OF_ADAM,
    "AdamW": _OF_ADAM,
    "adamw": _OF_ADAM,
    "Lamb": {"max_coeff": (10.0,), "min_coeff": (0.01,)},
    "Lion": {},
    "SGD": {"momentum": (0.9,), "nesterov": (True,)},
    "Adagrad": {},
    "OneBitAdam": _ONE_BIT,
    "ZeroOneAdam": {"var_freeze_step": (1000,), "cuda_aware": (False,)},
    "OneBitLamb": {"freeze_step": (1000,)},
    "Adafactor": {},
}
"""Types, and what their parameters are beside Adam's: deepspeed 0.14.5 to 0.19.8 runtime/engine.py
`_configure_basic_optimizer`. Not each takes each."""
OFTEN: Final = ("Adam", "AdamW", "AdamW", "AdamW", "AdamW")

_BUCKETS: Final = (200000000, 500000000, 1e8, 5e8)
ZERO: Final[Drawn] = {
    "overlap_comm": BOTH,
    "contiguous_gradients": BOTH,
    "reduce_scatter": BOTH,
    "reduce_bucket_size": _BUCKETS,
    "allgather_partitions": BOTH,
    "allgather_bucket_size": _BUCKETS,
    "round_robin_gradients": BOTH,
    "sub_group_size": (1e9, 1000000),
    "ignore_unused_parameters": BOTH,
}
SELDOM_ZERO: Final[Drawn] = {
    "load_from_fp32_weights": BOTH,
    "elastic_checkpoint": (False,),
    "legacy_stage1": (False,),
    "use_multi_rank_bucket_allreduce": BOTH,
    "cpu_offload": BOTH,
    "cpu_offload_use_pin_memory": BOTH,
    "zero_quantized_gradients": BOTH,
    "zero_quantized_weights": BOTH,
    "zero_quantized_nontrainable_weights": BOTH,
    "zero_hpz_partition_size": (1, 2, 4),
    "mics_shard_size": (-1, 2),
    "mics_hierarchical_params_gather": BOTH,
    "log_trace_cache_warnings": BOTH,
    "override_module_apply": BOTH,
}
THREE: Final[Drawn] = {
    "stage3_prefetch_bucket_size": (0, 50000000, 5e7),
    "stage3_param_persistence_threshold": (0, 100000, 1e5),
    "stage3_max_live_parameters": (1e9, 1000),
    "stage3_max_reuse_distance": (1e9, 1000),
    "stage3_gather_16bit_weights_on_model_save": BOTH,
}
SELDOM_THREE: Final[Drawn] = {
    "stage3_model_persistence_threshold": (1000000, 1e12),
    "stage3_gather_fp16_weights_on_model_save": BOTH,
    "memory_efficient_linear": BOTH,
    "pipeline_loading_checkpoint": BOTH,
    "stage3_module_granularity_threshold": (0, 1000),
    "stage3_use_all_reduce_for_fetch_params": BOTH,
}
OFFLOADED_STATES: Final[Drawn] = {
    "pin_memory": BOTH,
    "buffer_count": (4, 5),
    "fast_init": BOTH,
    "pipeline_read": BOTH,
    "pipeline_write": BOTH,
    "ratio": (1.0, 0.5),
    "nvme_path": ("/nvme", None),
}
OFFLOADED_PARAMS: Final[Drawn] = {
    "pin_memory": BOTH,
    "buffer_count": (5,),
    "buffer_size": (100000000, 1e8),
    "max_in_cpu": (1e9, 1000000000),
}
HALF: Final[Drawn] = {
    "loss_scale": (0, 0.0, 128),
    "initial_scale_power": (8, 16),
    "loss_scale_window": (100, 1000),
    "hysteresis": (1, 2),
    "consecutive_hysteresis": BOTH,
    "min_loss_scale": (1, 0.5),
    "auto_cast": BOTH,
    "fp16_master_weights_and_grads": (False,),
}
BRAIN: Final[Drawn] = {"immediate_grad_update": BOTH, "check_grad_overflow": BOTH}

SCHEDULES: Final[Mapping[str, Mapping[str, Any]]] = {
    "WarmupLR": {"warmup_min_lr": 0, "warmup_max_lr": 1e-3, "warmup_num_steps": 10},
    "WarmupDecayLR": {
        "total_num_steps": 100,
        "warmup_min_lr": 0,
        "warmup_max_lr": 1e-3,
        "warmup_num_steps": 10,
    },
    "WarmupCosineLR": {"total_num_steps": 100, "warmup_num_steps": 10},
    "OneCycle": {"cycle_min_lr": 1e-4, "cycle_max_lr": 1e-3},
    "LRRangeTest": {"lr_range_test_min_lr": 1e-4, "lr_range_test_step_size": 10},
}
SCHEDULED: Final[Mapping[str, Drawn]] = {
    "WarmupLR": {"warmup_type": ("log", "linear"), "last_batch_iteration": (-1,)},
    "WarmupDecayLR": {"warmup_type": ("log", "linear")},
    "WarmupCosineLR": {
        "cos_min_ratio": (0.01,),
        "warmup_min_ratio": (0.0, 0.1),
        "warmup_type": ("linear",),
    },
    "OneCycle": {
        "cycle_first_step_size": (10, 1000),
        "decay_lr_rate": (0.001,),
        "cycle_momentum": BOTH,
        "decay_step_size": (0, 10),
    },
    "LRRangeTest": {"lr_range_test_step_rate": (1.0,), "lr_range_test_staircase": BOTH},
}
"""Parameters that a schedule has besides: deepspeed 0.19.8 runtime/lr_schedules.py."""

ROOT: Final[Drawn] = {
    "gradient_clipping": (0, 0.5, 1.0),
    "steps_per_print": (1, 2000),
    "wall_clock_breakdown": BOTH,
    "zero_allow_untested_optimizer": BOTH,
    "zero_force_ds_cpu_optimizer": (False,),
    "dump_state": (False,),
    "prescale_gradients": (False,),
    "gradient_predivide_factor": (1.0, 1, 2.0),
    "memory_breakdown": BOTH,
    "communication_data_type": ("fp16", "bf16", "fp32"),
    "seq_parallel_communication_data_type": ("fp32", "bf16"),
    "disable_allgather": BOTH,
    "dataloader_drop_last": BOTH,
    "sparse_gradients": (False,),
}
SECTIONS: Final[Drawn] = {
    "activation_checkpointing": Block(
        {
            "partition_activations": BOTH,
            "cpu_checkpointing": BOTH,
            "contiguous_memory_optimization": (False,),
            "number_checkpoints": (None, 4),
            "synchronize_checkpoint_boundary": BOTH,
            "profile": BOTH,
        }
    ),
    "flops_profiler": Block(
        {
            "enabled": BOTH,
            "profile_step": (1,),
            "module_depth": (-1,),
            "top_modules": (1,),
            "detailed": BOTH,
            "output_file": (None, "flops.txt"),
            "recompute_fwd_factor": (0.0,),
        }
    ),
    "aio": Block(
        {
            "block_size": (262144, 1048576),
            "queue_depth": (8, 32),
            "thread_count": (1,),
            "intra_op_parallelism": (1,),
            "single_submit": BOTH,
            "overlap_events": BOTH,
            "use_gds": (False,),
        }
    ),
    "comms_logger": Block(
        {
            "enabled": BOTH,
            "verbose": BOTH,
            "prof_all": BOTH,
            "debug": BOTH,
            "prof_ops": ([], ["all_reduce"]),
        }
    ),
    "tensorboard": Block({"enabled": BOTH, "output_path": ("logs",), "job_name": ("run",)}),
    "wandb": Block({"enabled": (False,), "project": ("p",), "team": ("t",)}),
    "csv_monitor": Block({"enabled": BOTH, "output_path": ("logs",)}),
    "data_types": Block({"grad_accum_dtype": ("fp32", "bf16", "fp16")}, 1),
    "checkpoint": Block(
        {
            "tag_validation": ("Ignore", "Warn", "Fail"),
            "load_universal": BOTH,
            "use_node_local_storage": BOTH,
            "parallel_write": ({"pipeline_stage": False},),
        }
    ),
    "elasticity": Block(
        {
            "enabled": (False, False, True),
            "max_train_batch_size": (2000, 10000),
            "micro_batch_sizes": ([2, 4, 6], [1, 2, 4, 8]),
            "min_gpus": (1,),
            "max_gpus": (64,),
            "min_time": (20,),
            "version": (0.1, 0.2),
            "ignore_non_elastic_batch_info": BOTH,
        },
        1,
    ),
    "curriculum_learning": (
        {
            "enabled": True,
            "curriculum_type": "seqlen",
            "min_difficulty": 8,
            "max_difficulty": 1024,
            "schedule_type": "fixed_linear",
            "schedule_config": {"total_curriculum_step": 40000, "difficulty_step": 8},
        },
    ),
    "data_efficiency": ({"enabled": False, "seed": 1234},),
    "hybrid_engine": Block({"enabled": (False,), "max_out_tokens": (512,)}),
    "torch_autocast": Block({"enabled": BOTH, "dtype": ("bfloat16",)}, 1),
    "progressive_layer_drop": Block({"enabled": (False,), "theta": (0.5,)}),
    "eigenvalue": Block({"enabled": (False,), "max_iter": (100,)}),
    "autotuning": Block({"enabled": (False,), "fast": BOTH}),
    "amp": Block({"enabled": (False,), "opt_level": ("O1",)}),
}
