"""Gradients in a backward pass: at its start, while they are computed, and at its end.

Stage 1 keeps all gradients until the pass is over and reduces them then. Stage 2, and stage 1 that
overlaps, moves each gradient into the reduce bucket when it is computed; a full bucket is reduced
and a rank's own part copied to its buffer (deepspeed 0.19.8 `runtime/zero/stage_1_and_2.py`,
`process_gradients`, `reduce_ipg_grads`).
"""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.analyses.memory.counts import Counts
from tunec.compiler.analyses.memory.modules import experts_apart
from tunec.compiler.analyses.memory.reductions import AFTER, Reduction
from tunec.compiler.analyses.memory.sharding import (
    GRADIENTS,
    PARAMETERS,
    Sharding,
    accumulates_whole_fp32,
    is_hooked,
    partition_buffer,
    reduce_buckets,
    waiting_gradient,
)
from tunec.compiler.analyses.memory.terms.optimizer import MASTER_BYTES, in_backward_bytes
from tunec.compiler.analyses.memory.timeline import At, Moment, Sizes, Term, lasting, reduction

_UNSHARDED_REDUCTION: Final = 500_000_000
"""Elements that stage 0 concatenates for one all-reduce (deepspeed 0.19.8 `runtime/engine.py`,
`MEMORY_OPT_ALLREDUCE_SIZE`)."""


def at_last_layer(plan: Sharding) -> Sizes:
    """Gradients at the layer next to the loss, including the head's own gradient.

    A tied head's gradient waits, not accumulated, for the embedding's gradient.
    """
    if goes_as_it_comes(plan):
        return in_layers(plan, holds=plan.holds_in_last_layer)
    return partly(plan, _of_head(plan.counts))


def goes_as_it_comes(plan: Sharding) -> bool:
    """Whether a gradient is reduced or applied before all others are made."""
    return is_hooked(plan) or plan.releases


def in_layers(plan: Sharding, *, holds: bool) -> Sizes:
    """Gradients in a layer, if they go as they come; `holds`: whether the rank has some by then."""
    counts = plan.counts
    if plan.releases:
        return _released(plan)
    # in a mixture of experts the first gradients to come are those of experts
    waiting = (counts.embedding if counts.tied else 0) - counts.inner * (counts.experts > 0)
    arriving = _on_their_way(plan, max(waiting, -counts.inner))
    return {**arriving, **_held(plan, holds=holds)}


def at_first_layer(plan: Sharding, segment: int = 1) -> Sizes:
    """Gradients at the first layer: all but the embedding's and most of that layer's own.

    `segment`: the number of layers recomputed with it, none of which is differentiated yet.
    """
    counts = plan.counts
    if goes_as_it_comes(plan):
        return in_layers(plan, holds=plan.holds(0))
    embedding = 0 if counts.tied else counts.embedding
    later = counts.late + counts.experts + embedding + counts.vision
    later += (segment - 1) * _of_a_layer(plan)
    return partly(plan, plan.arriving - later)


def _released(plan: Sharding) -> Sizes:
    """A layer's gradient while the gradient that came before it is stepped.

    Hooks on the gradients of leaves run before those are accumulated (lomo-optim 0.1.1
    `fuse_update`, which steps the gradients that earlier hooks left). A tied head's part waits for
    the embedding's gradient.
    """
    counts, optimizer = plan.counts, plan.workload.optimizer
    return {
        "largest gradient": float(plan.parameter * counts.inner),
        "optimizer temporaries": in_backward_bytes(optimizer, plan.states, counts.inner),
        "tied gradient": float(plan.parameter * counts.embedding * counts.tied),
    }


def at_head(plan: Sharding) -> Sizes:
    """The output projection's gradient, which comes first, if gradients are freed as they come."""
    counts = plan.counts
    return {"largest gradient": float(plan.parameter * _of_head(counts))}


def head_stepped(plan: Sharding) -> Sizes:
    """Sizes while the output projection is stepped; a tied one is stepped at the end."""
    counts, optimizer = plan.counts, plan.workload.optimizer
    if counts.tied:
        return at_head(plan)
    return {"optimizer temporaries": in_backward_bytes(optimizer, plan.states, counts.head)}


def _of_head(counts: Counts) -> int:
    return counts.embedding if counts.tied else counts.head


def _of_a_layer(plan: Sharding) -> int:
    """Trained elements of one layer, on average."""
    counts = plan.counts
    layers = sum(stack.layers for stack in plan.workload.architecture.stacks)
    ends = counts.embedding + counts.head * (not counts.tied) + counts.vision
    return max(plan.arriving - ends, 0) // max(layers, 1)


def at_experts(plan: Sharding, parts: int, *, last: bool) -> Sizes:
    """Gradients at the experts of the last or the first layer, when the experts' own are computed.

    `parts`: thirds of the weights with gradients: one by the second product, all by gate and up.
    Gradients of earlier micro batches stay until the new one, which is of all experts, is added.
    """
    counts = plan.counts
    third = counts.experts // 3
    if is_hooked(plan):
        arriving = parts if plan.leaf or parts == 1 else parts - 1
        on_their_way = _on_their_way(plan, arriving * third - counts.inner)
        holds = plan.holds_in_last_layer if last else plan.holds(0)
        return {**on_their_way, **_held(plan, holds=holds)}
    if plan.releases:
        return _released(plan)
    adds = plan.accumulates and not accumulates_whole_fp32(plan)
    made = min(parts, 2) * third * (adds and not experts_apart(plan.workload))
    new = {"largest gradient": float(plan.parameter * made)}
    if last:
        return {**partly(plan, _of_head(counts) + parts * third), **new}
    later = counts.late + counts.embedding * (not counts.tied) + counts.vision
    return {**partly(plan, plan.arriving - later - (3 - parts) * third), **new}


def at_vision(plan: Sharding) -> Sizes:
    """Gradients between the text's layers and the vision tower's layers."""
    counts = plan.counts
    if goes_as_it_comes(plan):
        return in_layers(plan, holds=plan.holds(AFTER))
    return partly(plan, plan.arriving - counts.embedding * (not counts.tied) - counts.vision)


def at_decoder_embedding(plan: Sharding) -> Sizes:
    """Gradients at the decoder's end of an embedding that both halves share, before the encoder."""
    counts = plan.counts
    tied = {"tied gradient": float(_parts(plan) * plan.parameter * counts.embedding)}
    if goes_as_it_comes(plan):
        return {**in_layers(plan, holds=plan.holds(plan.left_to_encoder)), **tied}
    return {**partly(plan, plan.arriving - counts.encoder), **tied}


def at_embedding(plan: Sharding) -> Sizes:
    """All gradients at the end of the pass; of a tied weight both parts and their sum at once.

    Autograd adds the gradients of a weight used twice into a new tensor before it accumulates them
    (traced with torch 2.13: two more tensors of the embedding's size).
    """
    counts = plan.counts
    tied = {"tied gradient": float(_parts(plan) * plan.parameter * counts.embedding * counts.tied)}
    largest = {"largest gradient": float(plan.parameter * counts.embedding)}
    if plan.releases:
        return {**largest, **tied}
    if is_hooked(plan):
        held = _held(plan, holds=plan.holds(AFTER))
        return {**reduce_buckets(plan), **largest, **held, **tied}
    return {**partly(plan, plan.arriving), **tied}


def _parts(plan: Sharding) -> int:
    """Gradients of a tied weight besides the one that stays: both parts, or also their sum.

    Gradients of earlier micro batches stay beside the sum until they are added.
    """
    return 3 if plan.accumulates and not is_hooked(plan) else 2


def at_reduction(plan: Sharding) -> Sizes:
    """Sizes while all gradients are reduced together, unless they are reduced as they come."""
    if is_hooked(plan) or plan.releases:
        return {"gradients": 0.0}
    if plan.stage == 0 or accumulates_whole_fp32(plan):
        return {**partly(plan, plan.arriving), **_whole_reduction(plan)}
    if plan.in_groups:
        return max(_one_by_one(plan), key=lambda terms: sum(terms.values()))
    return {**partly(plan, plan.arriving), "reduced copy": _stage1_copied(plan)}


def _one_by_one(plan: Sharding) -> list[Sizes]:
    """Sizes at each reduction at the end of stage 1, with the gradients that are still to be moved.

    The rank's own buffer is allocated after the first one. If nothing trains, nothing is reduced.
    """
    size = plan.parameter
    return [
        {
            **reduce_buckets(plan),
            "gradients": float(size * (one.apart + one.later + one.kept)),
            "gradient partition": partition_buffer(plan) * one.held,
            "reduced copy": max(
                float(size * one.copied + MASTER_BYTES * one.summed * plan.widens),
                partition_buffer(plan) * one.brings,
            ),
        }
        for one in plan.reductions_at_end
    ] or [{}]


def at_reduction_on_the_way(plan: Sharding, one: Reduction) -> Sizes:
    """Sizes while the bucket is reduced during the pass, and the next gradient waits.

    Without `contiguous_gradients` there is no bucket: gradients stay where autograd made them, and
    all are concatenated (`buffered_reduce_fallback`).
    """
    loose = plan.stage < PARAMETERS and not plan.zero.contiguous_gradients
    copied = one.filled if loose else one.copied
    waits = plan.counts.tied and (one.inside or one.left == 1)  # the head's, for the embedding's
    if not plan.zero.reduce_scatter and plan.stage < PARAMETERS:
        copied = 0  # the bucket itself is summed (`gradient_reduction_w_predivide`)
    return {
        **reduce_buckets(plan),
        **_held(plan, holds=one.held or one.own > 0),
        "fp32 gradients": float(plan.gradient * one.own),
        "largest gradient": float(plan.parameter * one.apart),
        "waiting gradients": float(plan.parameter * one.filled * loose),
        "tied gradient": float(plan.parameter * plan.counts.embedding * waits),
        "reduced copy": max(plan.parameter * copied + _fp32_sums(plan, one), _brought(plan, one)),
    }


def _brought(plan: Sharding, one: Reduction) -> float:
    """Bytes of the rank's buffer at the reduction that gives it something to keep.

    The copies of that reduction are gone by then; the gradients that it reduced are not.
    """
    has = plan.gradient <= plan.parameter and not plan.optimizer_away
    return _buffer(plan) * (one.brings and has)


def _fp32_sums(plan: Sharding, one: Reduction) -> float:
    """Additional bytes of gradients that are summed in fp32.

    At stage 3 the bucket is in fp32, and the rank's part is converted back, or to the dtype of
    accumulation (deepspeed 0.19.8 `runtime/zero/stage3.py`, `__avg_scatter_grads`).
    """
    if not plan.widens:
        converts = plan.stage == PARAMETERS and plan.gradient > plan.parameter
        return plan.gradient * one.filled / plan.shards if converts else 0.0
    if plan.stage == PARAMETERS:
        wider = (MASTER_BYTES - plan.parameter) * one.copied
        return wider + plan.gradient * one.filled / plan.shards
    return float(MASTER_BYTES * one.summed)


def kept_gradients(plan: Sharding) -> Sizes:
    """Gradients of earlier micro batches that exist in a forward pass, in bytes.

    Stage 1 frees its bucket only after the reduction that follows the last micro batch.
    """
    if not plan.accumulates or plan.optimizer_away or plan.stage == PARAMETERS:
        return {}
    if plan.stage == GRADIENTS:
        return {"accumulated gradients": _buffer(plan)}
    name, size = waiting_gradient(plan)
    return {name: float(size * plan.arriving), **reduce_buckets(plan)}


def _buffer(plan: Sharding) -> float:
    if plan.gradient > plan.parameter:
        return plan.gradient * plan.counts.trainable / plan.shards
    return partition_buffer(plan)


def _held(plan: Sharding, *, holds: bool) -> Sizes:
    """The rank's own reduced gradients, of this micro batch and of earlier ones.

    `holds`: whether those of this one have begun to come.
    """
    if plan.stage == PARAMETERS or plan.optimizer_away:
        return {}
    if not holds:
        return kept_gradients(plan)
    if plan.gradient > plan.parameter:
        return {"accumulated gradients": _buffer(plan)}
    return {"gradient partition": _buffer(plan), **kept_gradients(plan)}


def _on_their_way(plan: Sharding, waiting: int) -> Sizes:
    """Buckets, a layer's largest gradient, and elements that wait beside it, in bytes."""
    arriving = float(plan.parameter * (plan.counts.inner + waiting))
    return {**reduce_buckets(plan), "largest gradient": arriving}


def _stage1_copied(plan: Sharding) -> float:
    """Bytes beyond the memory that gradients free when they are moved into the bucket."""
    own = partition_buffer(plan)
    if plan.counts.largest > plan.zero.reduce_bucket:
        return max(plan.parameter * plan.counts.largest, own)
    return max(own - plan.parameter * plan.zero.reduce_bucket, 0.0)


def _whole_reduction(plan: Sharding) -> Sizes:
    if not plan.deepspeed:
        return {}
    return {"gradient all-reduce": float(plan.parameter * reduction_elements(plan.counts))}


def reduction_elements(counts: Counts) -> int:
    """Elements that stage 0 concatenates at once, after the last backward pass."""
    return min(counts.trainable, _UNSHARDED_REDUCTION)


def partly(plan: Sharding, elements: float) -> Sizes:
    """Gradients of some elements that stay until the pass is over, and the bucket, in bytes."""
    name, size = waiting_gradient(plan)
    arriving = {**reduce_buckets(plan), name: float(size * elements)}
    kept = kept_gradients(plan)
    return {**arriving, **{n: max(size, arriving.get(n, 0)) for n, size in kept.items()}}


def gradient_terms(plan: Sharding, segment: int, *, dora: bool) -> Iterator[Term]:
    """Gradients from the first micro batch to the step, without FSDP.

    `segment`: the number of layers recomputed together; `dora`: whether adapters compute weight
    norms.
    """
    yield from lasting(kept_gradients(plan), At.FORWARD, At.LOSS_BACKWARD)
    last, first = at_last_layer(plan), at_first_layer(plan)
    yield from lasting(at_head(plan) if plan.releases else last, At.LOSS_DONE, At.HEAD)
    yield from lasting(last, At.LAST_LAYER, At.EXPANSION)
    yield from _as_they_come(plan)
    if segment > 1:
        yield from lasting(at_first_layer(plan, segment), At.ALL_REDUCED, At.FIRST_SEGMENT)
    yield from lasting(first, At.FIRST_LAYER if segment > 1 else At.ALL_REDUCED, At.FIRST_LAYER)
    if dora:
        yield from lasting(first, At.NORMS, At.NORMS)
    if plan.counts.experts or plan.counts.merges:
        yield from _in_experts(plan)
    if plan.workload.data.vision_tokens:
        yield from lasting(at_vision(plan), At.LAYERS_DONE, At.VISION_BACKWARD)
    yield from lasting(at_embedding(plan), At.EMBEDDING, At.EMBEDDING)


def last_layer(plan: Sharding, moment: Moment) -> Moment:
    """A moment inside the last layer, when all other layers are still to be differentiated."""
    return moment._replace(layers=_in_last_layer(plan))


def _in_last_layer(plan: Sharding) -> float:
    """The share of layers that are left in the last one; a UNet's blocks are its layers."""
    model = plan.workload.architecture
    layers = sum(stack.layers for stack in model.stacks) or len(model.unet)
    return 1 - 1 / max(layers, 1)


def _in_experts(plan: Sharding) -> Iterator[Term]:
    """Gradients while experts get theirs: in the last layer and, without hooks, the first."""
    for parts, at in ((1, At.LAST_INNER), (3, At.LAST_EXPERTS)):
        moment = last_layer(plan, at)
        yield from lasting(at_experts(plan, parts, last=True), moment, moment)
    if not is_hooked(plan):
        for parts, moment in ((1, At.FIRST_INNER), (3, At.FIRST_EXPERTS)):
            yield from lasting(at_experts(plan, parts, last=False), moment, moment)


def _as_they_come(plan: Sharding) -> Iterator[Term]:
    """Terms of reductions: each as its gradients come, or all at the end."""
    if not plan.reductions:
        yield from lasting(at_reduction(plan), At.REDUCTION, At.REDUCTION)
    for one in plan.reductions:
        moment = reduction(one.number, one.left)
        yield from lasting(at_reduction_on_the_way(plan, one), moment, moment)
