"""Variables of the environment that CUDA, NCCL, torch and the trainers read."""

from typing import Final

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
"""As NVIDIA's CUDA C++ Programming Guide 12.6 and NCCL 2.21 user guide list them; torch 2.13.0
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
"""Names that scripts use for themselves, or that the environment as a rule already has."""


def is_read_by_programs(name: str) -> bool:
    """Whether a variable means something to what a script starts, and to the script nothing."""
    return name in KNOWN - _OF_PROCESSES
