"""Gradients that stay where autograd made them, because they are larger than the reduce bucket.

What lies in the bucket is overwritten by what comes next; a gradient that is larger than the bucket
bypasses it. With transformers' bucket of the squared hidden width (`integrations/deepspeed.py`,
`hidden_size * hidden_size`) these are all matrices of a feed-forward. Two engines let them stay
until the pass is over (deepspeed 0.19.8 `runtime/zero/stage_1_and_2.py`; both traced):

- Stage 1, if it overlaps, keeps those of which the rank owns nothing, and copies the others to the
  buffer of its own part (`reduce_ipg_grads`: gradients are cleared under `partition_gradients`
  alone, which is stage 2).
- Stage 2 that accumulates in fp32 keeps those of which the rank owns a piece, beside the sum to
  which it has added that piece (`copy_grads_in_partition` returns before it copies them).
"""

from collections.abc import Callable, Iterator

from tunec.compiler.analyses.memory.reductions import stays
from tunec.compiler.analyses.memory.sharding import (
    PARAMETERS,
    Sharding,
    is_hooked,
    partition_buffer,
)
from tunec.compiler.analyses.memory.timeline import At, Sizes, Term, lasting, reduction
from tunec.compiler.analyses.memory.trained_tensors import in_backward_order, trained_tensors


def oversized_terms(plan: Sharding) -> Iterator[Term]:
    """These gradients at each moment of a backward pass, and at its end the rank's own buffer.

    A rank that owns a piece of the embedding alone copies that gradient, which comes last, while it
    still exists. A tied one has taken more before, when both its parts were added.
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
    yield from lasting(_sizes(plan, of_layers), At.ALL_REDUCED, At.VISION_BACKWARD)
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
