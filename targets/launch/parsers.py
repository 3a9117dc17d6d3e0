"""The flags that each launcher's own parser has, in any release that is known."""

from collections.abc import Mapping
from typing import Final

FLAGS: Final[Mapping[str, frozenset[str]]] = {
    "torchrun": frozenset(
        {
            *("duplicate_stderr_filters", "duplicate_stdout_filters", "event_log_handler", "h"),
            *("help", "local_addr", "local_ranks_filter", "log_dir", "logs_specs", "m"),
            *("master_addr", "master_port", "max_restarts", "module", "monitor_interval"),
            *("nnodes", "no_python", "node_rank", "nproc_per_node", "numa_binding", "r"),
            *("rdzv_backend", "rdzv_conf", "rdzv_endpoint", "rdzv_id", "redirects", "role"),
            *("run_path", "shutdown_timeout", "signals_to_handle", "standalone", "start_method"),
            *("t", "tee", "virtual_local_rank"),
        }
    ),
    "deepspeed": frozenset(
        {
            *("H", "autotuning", "bind_core_list", "bind_cores_to_rank", "e", "elastic_training"),
            *("enable_each_rank_log", "exclude", "force_multi", "h", "help", "hostfile", "i"),
            *("include", "launcher", "launcher_args", "log_level", "master_addr", "master_port"),
            *("max_elastic_nodes", "min_elastic_nodes", "module", "no_local_rank", "no_python"),
            *("no_ssh", "no_ssh_check", "node_rank", "num_accelerators", "num_gpus", "num_nodes"),
            *("q", "quiet", "save_pid", "ssh_port", "venv_script"),
        }
    ),
    "accelerate": frozenset(
        {
            *("aws_access_key_id", "aws_secret_access_key", "config_file", "cpu", "debug"),
            *("deepspeed_config_file", "deepspeed_exclusion_filter", "deepspeed_hostfile"),
            *("deepspeed_inclusion_filter", "deepspeed_moe_layer_cls_names"),
            *("deepspeed_multinode_launcher", "downcast_bf16", "dynamo_backend", "dynamo_mode"),
            *("dynamo_use_dynamic", "dynamo_use_fullgraph", "dynamo_use_regional_compilation"),
            *("enable_cpu_affinity", "env", "fp8_amax_compute_algo", "fp8_amax_history_len"),
            *("fp8_backend", "fp8_enable_fsdp_float8_all_gather", "fp8_format", "fp8_interval"),
            *("fp8_margin", "fp8_opt_level", "fp8_override_linear_precision", "fp8_pad_inner_dim"),
            *("fp8_use_autocast_during_eval", "fsdp_activation_checkpointing"),
            *("fsdp_activation_checkpointing_offload", "fsdp_auto_wrap_policy"),
            *("fsdp_backward_prefetch", "fsdp_backward_prefetch_policy"),
            *("fsdp_cpu_ram_efficient_loading", "fsdp_forward_prefetch", "fsdp_min_num_params"),
            *("fsdp_offload_params", "fsdp_reshard_after_forward", "fsdp_sharding_strategy"),
            *("fsdp_state_dict_type", "fsdp_sync_module_states"),
            *("fsdp_transformer_layer_cls_to_wrap", "fsdp_use_orig_params", "fsdp_version"),
            *("gpu_ids", "gradient_accumulation_steps", "gradient_clipping", "h", "help", "ipex"),
            *("log_dir", "m", "machine_rank", "main_process_ip", "main_process_port"),
            *("main_training_function", "max_restarts", "megatron_lm_attention_backend"),
            *("megatron_lm_attention_dropout", "megatron_lm_attention_softmax_in_fp32"),
            *("megatron_lm_calculate_per_token_loss", "megatron_lm_context_parallel_size"),
            *("megatron_lm_decoder_last_pipeline_num_layers", "megatron_lm_eod_mask_loss"),
            *("megatron_lm_expert_model_parallel_size", "megatron_lm_expert_tensor_parallel_size"),
            *("megatron_lm_gradient_clipping", "megatron_lm_hidden_dropout"),
            *("megatron_lm_no_load_optim", "megatron_lm_no_save_optim"),
            *("megatron_lm_num_micro_batches", "megatron_lm_optimizer_cpu_offload"),
            *("megatron_lm_overlap_cpu_optimizer_d2h_h2d", "megatron_lm_pp_degree"),
            *("megatron_lm_recompute_activations", "megatron_lm_recompute_granularity"),
            *("megatron_lm_recompute_method", "megatron_lm_recompute_num_layers"),
            *("megatron_lm_sequence_parallelism", "megatron_lm_tp_degree"),
            *("megatron_lm_use_custom_fsdp", "megatron_lm_use_distributed_optimizer"),
            "megatron_lm_use_precision_aware_optimizer",
            *("megatron_lm_use_rotary_position_embeddings", "mixed_precision", "module"),
            *("monitor_interval", "mpirun_ccl", "mpirun_hostfile", "multi_gpu", "no_python"),
            *("no_tpu_cluster", "num_cpu_threads_per_process", "num_machines", "num_processes"),
            *("offload_optimizer_device", "offload_optimizer_nvme_path", "offload_param_device"),
            *("offload_param_nvme_path", "parallelism_config_cp_backend"),
            *("parallelism_config_cp_comm_strategy", "parallelism_config_cp_size"),
            *("parallelism_config_dp_replicate_size", "parallelism_config_dp_shard_size"),
            *("parallelism_config_sp_attn_implementation", "parallelism_config_sp_backend"),
            *("parallelism_config_sp_seq_length", "parallelism_config_sp_seq_length_is_variable"),
            *("parallelism_config_sp_size", "parallelism_config_tp_size", "q", "quiet"),
            *("rdzv_backend", "rdzv_conf", "role", "same_network", "t", "tee", "tp_size", "tpu"),
            *("tpu_cluster", "tpu_use_sudo", "use_deepspeed", "use_fsdp", "use_megatron_lm"),
            *("use_parallelism_config", "use_tp", "use_xpu", "vm", "zero3_init_flag"),
            *("zero3_save_16bit_model", "zero_stage"),
        }
    ),
}
"""torch 2.13.0 distributed/run.py `get_args_parser`; deepspeed 0.14.5, 0.16.9, 0.19.8
launcher/runner.py `parse_args`; accelerate 0.33.0, 1.6.0, 1.12.0, 1.15.0
commands/launch.py `launch_command_parser`: all are asked, and `-` is written as `_`."""
MODULE_FLAGS: Final = frozenset({"use_env"})
"""What `python -m torch.distributed.launch` takes beside those: torch 2.13.0
distributed/launch.py `parse_args`."""
