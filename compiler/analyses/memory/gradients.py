"""Gradients as a backward pass brings them: what is there at its start, on its way, at its end."""

from tunec.compiler.analyses.memory.phase import Terms
from tunec.compiler.analyses.memory.sharding import (
    Sharding,
    backward_gradients,
    kept_gradients,
    reduce_buckets,
)


def at_loss(plan: Sharding) -> Terms:
    """Gradients and reduction buffers when the backward pass starts, in bytes."""
    return {**kept_gradients(plan), **reduce_buckets(plan)}


def at_last_layer(plan: Sharding) -> Terms:
    """At the layer next to the loss: besides, the head's own gradient."""
    return _partial(plan, plan.counts.embedding if plan.counts.tied else plan.counts.head)


def at_first_layer(plan: Sharding) -> Terms:
    """At the layer next to the embedding: all but the embedding's and most of that layer's."""
    counts = plan.counts
    embedding = 0 if counts.tied else counts.embedding
    return _partial(plan, counts.trainable - counts.late - counts.experts - embedding)


def at_experts(plan: Sharding) -> Terms:
    """At the first layer's experts, when their own gradients have come."""
    counts = plan.counts
    embedding = 0 if counts.tied else counts.embedding
    return _partial(plan, counts.trainable - counts.late - embedding)


def at_embedding(plan: Sharding) -> Terms:
    """At the end: all gradients; of a tied weight both parts and their sum at once.

    Autograd adds the gradients of a weight used twice into a new tensor before it accumulates them
    (traced with torch 2.13: two more tensors of the embedding's size).
    """
    tied = 2 * plan.parameter * plan.counts.embedding if plan.counts.tied else 0
    return {**backward_gradients(plan), "tied gradient": float(tied)}


def _partial(plan: Sharding, elements: float) -> Terms:
    """The terms of a whole backward pass, with gradients of only some elements."""
    whole = backward_gradients(plan)
    share = min(elements / plan.counts.trainable, 1) if plan.counts.trainable else 0
    arriving = {
        name: size * share if name in ("gradients", "new gradients") else size
        for name, size in whole.items()
    }
    kept = kept_gradients(plan)
    return {**arriving, **{n: max(size, arriving.get(n, 0)) for n, size in kept.items()}}
