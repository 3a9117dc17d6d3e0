"""Gradients and their buffers that exist from the first step to the last."""

from tunec.compiler.analyses.memory.modules import BYTES
from tunec.compiler.analyses.memory.muon import gathers
from tunec.compiler.analyses.memory.sharding import PARAMETERS, Sharding, accumulates_whole_fp32
from tunec.compiler.analyses.memory.timeline import Sizes
from tunec.compiler.analyses.memory.workload import Workload


def resident_gradients(workload: Workload, plan: Sharding) -> Sizes:
    """Gradients and their buffers that exist from the first step to the last, in bytes."""
    terms = {"gradients": float(_resident(plan))}
    if plan.halves is not None and plan.stage == PARAMETERS:
        found = gathers(workload, plan.shards, plan.zero.reduce_bucket, plan.gradient)
        terms["gathering buffers kept"] = found.kept
    buckets = _ddp_buckets(plan) + _stage3_bucket(plan) + _offload_buffer(plan)
    return {**terms, "gradient buckets": buckets}


def _resident(plan: Sharding) -> float:
    """Gradients that are never freed: all of them under BF16_Optimizer, the shard at stage 3."""
    if plan.optimizer_away or plan.fsdp.version:
        return 0
    if accumulates_whole_fp32(plan):
        return plan.gradient * plan.counts.trainable
    return plan.gradient * plan.shard(plan.counts.trainable, 3) if plan.stage == PARAMETERS else 0


def _ddp_buckets(plan: Sharding) -> float:
    """Bytes of the buckets in which DistributedDataParallel reduces copies of all gradients.

    torch `nn/parallel/distributed.py`: without `gradient_as_bucket_view`, which neither
    transformers nor accelerate sets, buckets of 25 MiB have their own memory.
    """
    return plan.parameter * sum(plan.wanting) if plan.ddp else 0


def _stage3_bucket(plan: Sharding) -> float:
    """Bytes of stage 3's one bucket, in the engine's dtype (`stage3.py`, `comm_dtypes`)."""
    has = plan.stage == PARAMETERS and not plan.fsdp.version
    size = BYTES["fp32"] if plan.widens else BYTES[plan.states.weights]
    return size * plan.zero.reduce_bucket if has else 0


def _offload_buffer(plan: Sharding) -> float:
    """Bytes of the buffer through which stages 1 and 2 move gradients to the host, one at a time.

    deepspeed 0.19.8 `runtime/zero/stage_1_and_2.py`, `temp_grad_buffer_for_gpu_offload`.
    """
    away = plan.optimizer_away and plan.stage < PARAMETERS
    return float(plan.parameter * plan.counts.largest) if away else 0
