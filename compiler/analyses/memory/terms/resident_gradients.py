"""Gradients that stay: from the first step to the last, or where autograd made them."""

from collections.abc import Callable, Iterator

from tunec.compiler.analyses.memory.modules import BYTES
from tunec.compiler.analyses.memory.muon import gathers
from tunec.compiler.analyses.memory.reductions import stays
from tunec.compiler.analyses.memory.sharding import (
    PARAMETERS,
    Sharding,
    accumulates_whole_fp32,
    is_hooked,
    partition_buffer,
)
from tunec.compiler.analyses.memory.timeline import At, Sizes, Term, lasting, reduction
from tunec.compiler.analyses.memory.trained_tensors import in_backward_order, trained_tensors
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


def oversized_terms(plan: Sharding) -> Iterator[Term]:
    """Gradients that are larger than the reduce bucket, at each moment of a backward pass.

    They bypass the bucket, whose content is overwritten by what comes next. With transformers'
    bucket of the squared hidden width (`integrations/deepspeed.py`, `hidden_size * hidden_size`)
    these are all matrices of a feed-forward. Two engines let them stay until the pass is over
    (deepspeed 0.19.8 `runtime/zero/stage_1_and_2.py`; both traced):

    - Stage 1, if it overlaps, keeps those of which the rank owns nothing, and copies the others to
      the buffer of its own part (`reduce_ipg_grads`: gradients are cleared under
      `partition_gradients` alone, which is stage 2).
    - Stage 2 that accumulates in fp32 keeps those of which the rank owns a piece, beside the sum to
      which it has added that piece (`copy_grads_in_partition` returns before it copies them).

    At the end of the pass the rank's own buffer is counted too. A rank that owns a piece of the
    embedding alone copies that gradient, which comes last, while it still exists. A tied one has
    taken more before, when both its parts were added.
    """
    embedding, own = plan.counts.embedding, plan.partition
    alone = 0 < own.elements <= embedding and own.ends <= embedding and not plan.counts.tied
    if is_hooked(plan) and plan.stage < PARAMETERS and alone:
        copied = partition_buffer(plan) * (embedding > plan.zero.reduce_bucket)
        yield from lasting({"gradient partition": copied}, At.EMBEDDING, At.EMBEDDING)
    if not plan.kept:
        return
    before, of_layers = _made(plan, lambda left: left == 1), _made(plan, lambda left: left > 0)
    yield from lasting(_sizes(plan, before), At.LAST_LAYER, At.LAST_EXPERTS)
    for one in plan.reductions:
        moment = reduction(one.number, one.left)
        yield from lasting(_sizes(plan, one.kept), moment, moment)
    yield from lasting(_sizes(plan, of_layers), At.ALL_REDUCED, At.FIRST_EXPERTS)
    encoder = plan.left_to_encoder
    ahead = _made(plan, lambda left: left >= encoder) if encoder else of_layers
    yield from lasting(_sizes(plan, ahead), At.DECODER_EMBEDDING, At.VISION_BACKWARD)
    yield from lasting(_sizes(plan, plan.kept), At.EMBEDDING, At.EMBEDDING)


def _sizes(plan: Sharding, elements: int) -> Sizes:
    return {"gradients": float(plan.parameter * elements)}


def _made(plan: Sharding, is_meant: Callable[[float], bool]) -> int:
    """Elements of those made at certain shares of layers that are left, 1 before all layers."""
    bucket, own, keeps = plan.zero.reduce_bucket, plan.partition, plan.keeps
    return sum(
        each.elements
        for each in in_backward_order(trained_tensors(plan.workload))
        if is_meant(each.left) and stays(each, bucket, own, keeps) and not each.tensor.idle
    )
