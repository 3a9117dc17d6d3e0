"""Flags of launchers and environment variables, which are only read.

The documents are those of `compiler/frontend/shell_nodes.py`: one of kind `launcher` for a command,
one of kind `slurm` for the `#SBATCH` lines.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.consumers.moved_keys import gone
from tunec.compiler.releases import Releases
from tunec.compiler.target import Entry, File, Json, Target, in_no_plan
from tunec.targets.accelerate.packages import ACCELERATE, PACKAGE
from tunec.targets.launch.target import LAUNCH_SH
from tunec.targets.read_only import observed

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
launcher/runner.py `parse_args`; accelerate 0.33.0, 1.6.0, 1.12.0, 1.15.0 commands/launch.py
`launch_command_parser`: all were run, and `-` is written as `_`."""
MODULE_FLAGS: Final = frozenset({"use_env"})
"""Further flags of `python -m torch.distributed.launch`: torch 2.13.0 distributed/launch.py
`parse_args`."""


KNOWN: Final = frozenset(
    {
        *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUDA_HOME"),
        *("NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
        *("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"),
        *("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE", "NCCL_P2P_DISABLE"),
        *("NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_ALGO"),
        *("NCCL_IB_GID_INDEX", "NCCL_IB_TIMEOUT", "NCCL_IB_RETRY_CNT", "NCCL_PROTO"),
        *("NCCL_IB_CUDA_SUPPORT", "NCCL_IB_TC", "NCCL_IB_SL", "NCCL_IB_QPS_PER_CONNECTION"),
        *("NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY", "NCCL_NET_GDR_LEVEL", "NCCL_BUFFSIZE"),
        *("NCCL_NET_GDR_READ", "NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_CROSS_NIC", "NCCL_NTHREADS"),
        *("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_TOPO_FILE", "NCCL_NVLS_ENABLE"),
        *("NCCL_ASYNC_ERROR_HANDLING", "NCCL_BLOCKING_WAIT", "NCCL_CUMEM_ENABLE"),
        *("NCCL_IGNORE_CPU_AFFINITY", "NCCL_COLLNET_ENABLE", "NCCL_LAUNCH_MODE"),
        *("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "MASTER_ADDR", "MASTER_PORT"),
        *("WORLD_SIZE", "RANK", "LOCAL_RANK", "NODE_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"),
        *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TOKENIZERS_PARALLELISM", "LD_LIBRARY_PATH"),
        *("TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_BLOCKING_WAIT", "TORCH_DISTRIBUTED_DEBUG"),
        *("TORCH_NCCL_AVOID_RECORD_STREAMS", "TORCH_CUDA_ARCH_LIST", "TORCH_EXTENSIONS_DIR"),
        *("TORCH_NCCL_ENABLE_MONITORING", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "TORCH_HOME"),
        *(
            "TORCHDYNAMO_DISABLE",
            "TORCHINDUCTOR_CACHE_DIR",
            "TORCH_LOGS",
            "TORCH_SHOW_CPP_STACKTRACES",
        ),
        *("HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_TOKEN", "HF_ENDPOINT"),
        *("HF_DATASETS_CACHE", "HF_DATASETS_OFFLINE", "HF_HUB_ENABLE_HF_TRANSFER"),
        *("TRANSFORMERS_CACHE", "TRANSFORMERS_OFFLINE", "TRANSFORMERS_VERBOSITY"),
        *("WANDB_PROJECT", "WANDB_MODE", "WANDB_DISABLED", "WANDB_API_KEY", "WANDB_NAME"),
        *("WANDB_DIR", "WANDB_ENTITY", "WANDB_RUN_ID", "WANDB_RESUME", "WANDB_LOG_MODEL"),
        *("WANDB_WATCH", "WANDB_RUN_GROUP", "WANDB_NOTES", "WANDB_TAGS", "WANDB_BASE_URL"),
        *("DS_ALLOW_DEPRECATED_FP16", "DS_SKIP_CUDA_CHECK", "DS_BUILD_OPS", "DS_ACCELERATOR"),
        *(
            "DS_BUILD_CPU_ADAM",
            "DS_BUILD_FUSED_ADAM",
            "DS_BUILD_AIO",
            "CUDA_DEVICE_MAX_CONNECTIONS",
        ),
        *("ACCELERATE_MIXED_PRECISION", "ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED"),
        *("ACCELERATE_DEBUG_MODE", "FSDP_CPU_RAM_EFFICIENT_LOADING", "FORCE_TORCHRUN"),
        *("PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONHASHSEED", "PATH", "HOME", "TMPDIR"),
    }
)
"""Listed in NVIDIA's CUDA C++ Programming Guide 12.6 and NCCL 2.21 user guide; torch 2.13.0
distributed/run.py, distributed/distributed_c10d.py; huggingface_hub 0.34 constants.py; wandb 0.19
env.py; deepspeed 0.19.8 accelerator/cuda_accelerator.py, op_builder/all_ops.py; accelerate 1.15.0
utils/launch.py; llamafactory 0.9.5 launcher.py."""

_OF_PROCESSES: Final = frozenset(
    {
        *("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "NODE_RANK"),
        *("LOCAL_WORLD_SIZE", "GROUP_RANK", "PATH", "HOME", "TMPDIR", "PYTHONPATH", "CUDA_HOME"),
        *("LD_LIBRARY_PATH", "HF_TOKEN", "WANDB_API_KEY", "WANDB_PROJECT", "WANDB_NAME", "RANK"),
    }
)
"""Names that scripts use for themselves, or that the environment usually already has."""


def is_read_by_programs(name: str) -> bool:
    """Whether the programs that a script starts read a variable, and the script itself does not."""
    return name in KNOWN - _OF_PROCESSES


_COMMAND: Final = "accelerate 0.30.1 to 1.15.0 commands/launch.py `launch_command_parser`"
_SBATCH: Final = "Slurm's sbatch manual page"


def _flag(name: str, slot: str) -> Entry:
    """A flag of `accelerate launch` that holds a slot's value unchanged."""
    key = f"flags.{name}"
    return observed((key,), (slot,), lambda found: {slot: found[key]}, _COMMAND, package=PACKAGE)


def _processes(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The processes in total, and those on each node if they divide evenly."""
    world, nodes = found["processes"], found.get("nodes", 1)
    each, rest = divmod(world, nodes)
    spread = {} if rest else {"devices.nodes": nodes, "devices.per_node": each}
    return {"parallel.world": world, **spread}


def _engine(found: Mapping[str, Json]) -> Mapping[str, Any]:
    if found.get("flags.use_deepspeed"):
        return {"parallel.engine": "deepspeed"}
    return {"parallel.engine": "ddp"} if found.get("flags.multi_gpu") else {}


def _mixed(found: Mapping[str, Json]) -> Mapping[str, Any]:
    word = found["flags.mixed_precision"]
    if word == "no":
        return {"states.autocast": False}
    return {"precision.compute": word, "states.autocast": True}


def _first_devices(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """`--gpu_ids 0,1` is set as CUDA_VISIBLE_DEVICES; `all` sets nothing."""
    word = str(found["flags.gpu_ids"])
    return {} if word == "all" else {"devices.visible": tuple(word.split(","))}


_ACCELERATE: Final = (
    observed(
        ("processes", "nodes"),
        ("parallel.world", "devices.nodes", "devices.per_node"),
        _processes,
        f"{_COMMAND}: --num_processes counts those of all machines",
        package=PACKAGE,
    ),
    observed(
        ("flags.use_deepspeed", "flags.multi_gpu"),
        ("parallel.engine",),
        _engine,
        _COMMAND,
        package=PACKAGE,
    ),
    observed(
        ("flags.mixed_precision",),
        ("precision.compute", "states.autocast"),
        _mixed,
        f"{_COMMAND}; utils/launch.py: ACCELERATE_MIXED_PRECISION",
        package=PACKAGE,
    ),
    observed(
        ("flags.gpu_ids",),
        ("devices.visible",),
        _first_devices,
        "accelerate 0.30.1 to 1.15.0 utils/launch.py `prepare_multi_gpu_env`",
        package=PACKAGE,
    ),
    _flag("zero_stage", "zero.stage"),
    _flag("offload_optimizer_device", "zero.offload_optimizer"),
    _flag("offload_param_device", "zero.offload_param"),
    _flag("zero3_save_16bit_model", "zero.gather_on_save"),
    _flag("gradient_accumulation_steps", "batch.accumulation"),
    _flag("gradient_clipping", "optimizer.max_grad_norm"),
)


def _is_accelerate(document: Json) -> bool:
    return isinstance(document, dict) and document.get("launcher") == "accelerate"


# ── Slurm ────────────────────────────────────────────────────────────────────────────────────────

_PER_NODE: Final = re.compile(r"(?:[A-Za-z][\w.-]*:)?(\d{1,6})")
_GRES: Final = re.compile(r"(?:gres/)?gpu(?::[A-Za-z][\w.-]*)?:(\d{1,6})(?:\(.*\))?")


def _devices(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """Devices of a node: `--gpus-per-node=a100:8`, else `--gres=gpu:8`."""
    key, form = ("gpus_per_node", _PER_NODE) if "gpus_per_node" in found else ("gres", _GRES)
    count = form.fullmatch(str(found[key]))
    return {} if count is None else {"devices.per_node": int(count[1])}


def _nodes(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """`--nodes=2-4` leaves the number to the cluster."""
    return {"devices.nodes": found["nodes"]}


_BATCH: Final = (
    observed(("nodes",), ("devices.nodes",), _nodes, _SBATCH),
    observed(("gpus_per_node", "gres"), ("devices.per_node",), _devices, _SBATCH),
)


def _is_batch(document: Json) -> bool:
    if not isinstance(document, dict) or "launcher" in document:
        return False
    marks = {"gpus_per_node", "gres", "ntasks_per_node", "cpus_per_task", "partition", "ntasks"}
    return bool(marks & set(document))


_LEAVES: Final = (
    gone(
        "flags.num_cpu_threads_per_process",
        "accelerate 0.33.0 to 1.15.0 utils/launch.py: OMP_NUM_THREADS",
        "the new command sets how many threads of the host a process has",
    ),
)

TARGET: Final = Target(
    name="launchers",
    package="torch",
    supported=Releases(">=2.0,<3"),
    latest="2.13.0",
    releases=("2.13.0",),
    files=(
        File(
            "accelerate launch",
            "shell",
            (*LAUNCH_SH.entries, *_ACCELERATE),
            _is_accelerate,
            when=in_no_plan,
            leaves=_LEAVES,
        ),
        File("sbatch", "shell", _BATCH, _is_batch, when=in_no_plan),
    ),
    cannot={},
    beside={PACKAGE: ACCELERATE},
)
"""Settings of accelerate and Slurm in a launch script."""
