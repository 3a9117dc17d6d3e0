"""Gradients that stage 1 leaves where autograd made them, because they are larger than its bucket.

Stage 1 reduces gradients as they come if it overlaps. What lies in its bucket is overwritten by
what comes next; a gradient that is larger than the bucket bypasses it, and stays until the pass is
over, unless the rank copies it to the buffer of its own part (deepspeed 0.19.8
`runtime/zero/stage_1_and_2.py`, `reduce_ipg_grads`: gradients are cleared under
`partition_gradients` alone, which is stage 2). With transformers' bucket of the squared hidden
width (`integrations/deepspeed.py`, `hidden_size * hidden_size`) these are all matrices of a
feed-forward. Traced.
"""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.analyses.memory.reductions import in_backward_order, trained_tensors
from tunec.compiler.analyses.memory.sharding import (
    PARAMETERS,
    Sharding,
    is_hooked,
    partition_buffer,
)
from tunec.compiler.analyses.memory.timeline import At, Sizes, Term, lasting, reduction

_BEFORE: Final = 2.0
"""What comes before all layers, in place of the share of them that is left."""


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
    if plan.stage != 1 or not is_hooked(plan):
        return
    made = tuple(_made(plan))
    if not made:
        return
    size = plan.parameter
    yield from lasting(_earlier(made, 1.0, size), At.LAST_LAYER, At.LAST_EXPERTS)
    for one in plan.reductions:
        moment = reduction(one.number, one.left)
        yield from lasting(_earlier(made, one.left, size), moment, moment)
    yield from lasting(_earlier(made, 0.0, size), At.ALL_REDUCED, At.VISION_BACKWARD)
    yield from lasting(_earlier(made, -1.0, size), At.EMBEDDING, At.EMBEDDING)


def _earlier(made: tuple[tuple[float, int], ...], left: float, size: int) -> Sizes:
    """Bytes of those that were made before a layer; `left`: the share of layers that follow it."""
    return {"gradients": float(size * sum(elements for at, elements in made if at > left))}


def _made(plan: Sharding) -> Iterator[tuple[float, int]]:
    """Those that stay, each with the share of layers that are left when it is made.

    The embedding's, which comes last, is left out.
    """
    tensors, own = trained_tensors(plan.workload), plan.partition
    for each in in_backward_order(tensors):
        ends = each.begins + each.elements
        owned = ends > own.ends - own.part and each.begins < own.ends
        is_last = each.tensor.layer is None and each.left <= 0
        if each.elements > plan.zero.reduce_bucket and not (owned or each.tensor.idle or is_last):
            yield _BEFORE if each.left == 1 else each.left, each.elements
