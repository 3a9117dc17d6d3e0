"""Parameters that ZeRO stage 3 gathers for a module's turn and frees afterwards."""

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from tunec.compiler.analyses.memory.counts import visited_layers
from tunec.compiler.analyses.memory.fetches import Live, live_elements
from tunec.compiler.analyses.memory.modules import BYTES, experts_apart
from tunec.compiler.analyses.memory.sharding import PARAMETERS, Sharding
from tunec.compiler.analyses.memory.terms.weights import persistent, second_shards
from tunec.compiler.analyses.memory.timeline import At, Moment, Sizes, Term, lasting, reduction
from tunec.compiler.analyses.memory.weight_views import has_own_products
from tunec.compiler.analyses.memory.workload import Workload


def gathered_terms(workload: Workload, plan: Sharding, *, checkpointed: bool) -> Iterator[Term]:
    """Parameters that ZeRO stage 3 has gathered at each moment."""
    layers = visited_layers(workload)
    turning = gathered(plan, checkpointed=checkpointed)
    yield from lasting(turning, At.FORWARD, At.VISION_FORWARD)
    yield from lasting(turning, At.FORWARDED, At.NORMS)
    yield from lasting(turning, At.EVALUATION, At.EVALUATION)
    share, together = gathered_together(plan, checkpointed=checkpointed)
    gathering = At.GATHERING._replace(layers=share)
    yield from lasting(together, gathering, gathering)
    last = gathered_last(plan, layers, checkpointed=checkpointed)
    yield from lasting(last, At.LAST_LAYER, At.EXPANSION)
    yield from lasting(last, At.EXPERTS_GATHERED, At.LAST_EXPERTS)
    for coming in gathered_again(plan, checkpointed=checkpointed):
        yield from lasting(coming.whole, coming.moment, coming.moment)
    for one in plan.reductions:
        whole = gathered_at(plan, layers, one.left, checkpointed=checkpointed)
        moment = reduction(one.number, one.left)
        yield from lasting(whole, moment, moment)
    ending = gathered_layer(plan, layers, checkpointed=checkpointed)
    yield from lasting(ending, At.ALL_REDUCED, At.REDUCTION)


def gathered(plan: Sharding, *, checkpointed: bool) -> Sizes:
    """Gathered bytes at stage 3 at the turn from forward to backward: at least the head's.

    Prefetching goes on until `max_live_parameters` elements are gathered. Besides, no parameter is
    freed that is needed again within `max_reuse_distance` elements: at the turn a parameter x
    elements before the end is 2x away from its next use, 3x if layers are recomputed on the way.
    Traced with deepspeed 0.19.8: the larger of the two is alive. Blocks of experts that are
    gathered as a whole are followed one by one (`fetches`).
    """
    found = _followed(plan, checkpointed=checkpointed)
    if found is not None:
        return _followed_sizes(plan, _turned(plan, found))
    kept = min(_kept(plan, checkpointed=checkpointed), plan.counts.base - _passed(plan))
    whole = _whole(plan, kept, plan.counts.output)
    waiting = BYTES[plan.states.weights] * _turning(plan, checkpointed=checkpointed)
    if waiting > whole.get("gathered parameters", 0):
        return {**whole, "gathered parameters": waiting}
    return whole


def _turned(plan: Sharding, found: Live) -> float:
    """Elements at the turn: with adapters on layers that save views, a layer and the head.

    Adapters are modules of their own, at each of which more is prefetched. Traced: 1.2e9 elements
    of Falcon-40B, which are these, and 2.8e9 of the 3.2e9 of Falcon-180B.
    """
    if not plan.counts.adapters or not has_own_products(plan.workload.architecture):
        return found.turn
    return max(found.turn, plan.counts.output + _unit(plan, visited_layers(plan.workload)))


def _turning(plan: Sharding, *, checkpointed: bool) -> int:
    """Elements that are gathered at the turn, with buffers; 0 where visits are not followed.

    A prefetch ends with the parameter that passes `max_live_parameters`. It may take the end of the
    last layer together with parameters of a layer that was released on the way, which the backward
    pass needs first: their common buffer stays until these are visited, beside the copies made of
    it (deepspeed 0.19.8 `_fetch_sub_module_impl`; `AllGatherCoalescedHandle`, which
    `InflightParamRegistry` holds for each parameter). Traced. Followed for language models that are
    trained in full: adapters, encoders and pictures are visited in another order.
    """
    workload = plan.workload
    stacks = [each for each in workload.architecture.stacks if each.part != "vision"]
    pictured = workload.data.vision_tokens > 0 or workload.architecture.source
    plain = all(each.part == "text" and not each.cross_attention for each in stacks)
    if plan.stage < PARAMETERS or lies_whole(plan) or plan.counts.adapters:
        return 0
    if pictured or not plain:
        return 0
    return _visits(plan, checkpointed=checkpointed).turn


def _passed(plan: Sharding) -> int:
    """Elements that no backward pass reaches: those of an embedding that is frozen and not tied.

    The elements of a vision tower without pictures count too.
    """
    model = plan.workload.architecture
    comes = plan.counts.embedding or plan.counts.tied or model.tied or model.embedding is None
    return plan.counts.unvisited + (0 if comes else model.vocab * model.hidden)


def gathered_at(plan: Sharding, layers: int, left: float, *, checkpointed: bool) -> Sizes:
    """Gathered bytes at stage 3 with a share of the layers left; at least one layer's."""
    found = _followed(plan, checkpointed=checkpointed)
    if found is not None:
        begun = round((1 - left) * len(found.layers))
        return _followed_sizes(plan, (_turned(plan, found), *found.layers)[begun])
    unit = _unit(plan, layers)
    visited = plan.counts.base - plan.counts.unvisited
    most = min(_kept(plan, checkpointed=checkpointed), left * visited + unit)
    return _whole(plan, most, unit)


def gathered_last(plan: Sharding, layers: int, *, checkpointed: bool) -> Sizes:
    """Gathered bytes at stage 3 when the last layer is differentiated."""
    left = 1 - 1 / max(layers, 1) if plan.counts.block else 1.0
    return gathered_at(plan, layers, left, checkpointed=checkpointed)


def gathered_layer(plan: Sharding, layers: int, *, checkpointed: bool) -> Sizes:
    """Gathered bytes at stage 3 near the end of a backward pass: mostly one layer's."""
    if plan.stage == PARAMETERS and plan.counts.block:
        return gathered_at(plan, layers, 0.0, checkpointed=checkpointed)
    return _whole(plan, 0, _unit(plan, layers))


def gathered_together(plan: Sharding, *, checkpointed: bool) -> tuple[float, Sizes]:
    """Gathered bytes at stage 3 while parameters are copied out of a buffer that holds several.

    They come with the share of the layers that a forward pass has reached by then. deepspeed 0.19.8
    `runtime/zero/partition_parameters.py`, `AllGatherCoalescedHandle`. Computed only in the cases
    of `_followed`.
    """
    found = _followed(plan, checkpointed=checkpointed)
    if found is None:
        return 0.0, {}
    buffer = {"gather buffer": float(BYTES[plan.states.weights] * found.buffers)}
    return found.reached, {**_followed_sizes(plan, found.beside), **buffer}


class Coming(NamedTuple):
    """Experts that are copied out of a buffer in a backward pass."""

    whole: Sizes
    moment: Moment
    is_recomputed: bool
    """Whether the experts are recomputed already, so that they are gathered to be
    differentiated."""


def gathered_again(plan: Sharding, *, checkpointed: bool) -> Iterator[Coming]:
    """Gathered parameters at stage 3, with their buffers, as experts come in a backward pass.

    Nothing is yielded if the experts are still gathered, or if no visits are followed.
    """
    live = _followed(plan, checkpointed=checkpointed)
    if live is None:
        return
    for at, found in ((At.EXPERTS_REPEATED, live.repeated), (At.EXPERTS_GATHERING, live.again)):
        if found is not None:
            buffer = {"gather buffer": float(BYTES[plan.states.weights] * found.buffers)}
            whole = {**_followed_sizes(plan, found.beside), **buffer}
            moment = at._replace(layers=found.left)
            yield Coming(whole, moment, at == At.EXPERTS_GATHERING)


def fetched(plan: Sharding) -> Sizes:
    """Bytes of the buffer into which stage 3 gathers the parameters of layers together.

    Modules are fetched as a whole, in order, until a prefetch has its number of elements (deepspeed
    0.19.8 `runtime/zero/partitioned_param_coordinator.py`, `fetch_sub_module`).
    """
    if plan.stage < PARAMETERS or lies_whole(plan):
        return {}
    sizes = [prod(m.shape) for m in plan.workload.architecture.modules if "{}" in m.path]
    asked, together = min(plan.zero.prefetch_bucket, plan.counts.base), 0
    turns = -(-asked // max(sum(sizes), 1))
    for size in sizes * turns:
        together += size
        if together >= asked:
            break
    return {"gather buffer": float(BYTES[plan.states.weights] * min(together, plan.counts.base))}


def _followed(plan: Sharding, *, checkpointed: bool) -> Live | None:
    """Gathered elements visit by visit, if stage 3 gathers blocks of experts.

    Visits are also followed if layers save views of their weights, or if the head alone has more
    than `max_live_parameters` elements: it is fetched while layers have as many (BLOOM, mT5).
    """
    counts, most = plan.counts, plan.zero.max_live_parameters
    views = has_own_products(plan.workload.architecture)
    follows = counts.block or views or counts.output > most > counts.inner
    if plan.stage < PARAMETERS or not follows or lies_whole(plan):
        return None
    return _visits(plan, checkpointed=checkpointed)


def _visits(plan: Sharding, *, checkpointed: bool) -> Live:
    workload = plan.workload
    apart = experts_apart(workload)
    how = {"checkpointed": checkpointed, "blocks": plan.leaf > 0, "apart": apart}
    adapted = frozenset(module.path for module in workload.adapted)
    return live_elements(
        workload.architecture, plan.zero, lets_go=plan.lets_go, adapted=adapted, **how
    )


def _kept(plan: Sharding, *, checkpointed: bool) -> float:
    """Elements that prefetching or reuse keeps gathered."""
    reused = plan.zero.max_reuse_distance / (3 if checkpointed else 2)
    return max(plan.zero.max_live_parameters, reused)


def _unit(plan: Sharding, layers: int) -> float:
    """Elements that are gathered together while a layer is differentiated."""
    visited = plan.counts.base - plan.counts.unvisited
    return max(visited / max(layers, 1), plan.counts.largest)


def _followed_sizes(plan: Sharding, elements: float) -> Sizes:
    """Bytes of followed elements, which may be more than all elements: some exist twice."""
    counts = plan.counts
    base = counts.base + counts.adapters
    return {
        "gathered parameters": BYTES[plan.states.weights] * elements,
        "second shards": second_shards(plan) * (1 - min(elements / base, 1)),
    }


def _whole(plan: Sharding, elements: float, unit: float) -> Sizes:
    """Bytes of gathered elements, at least of a unit.

    Parameters that stay gathered from their first use have no second shard.
    """
    if plan.stage < PARAMETERS or lies_whole(plan):
        return {}
    counts, size = plan.counts, BYTES[plan.states.weights]
    base = counts.base + counts.adapters
    live = min(base - counts.unvisited - persistent(plan), max(elements, unit))
    return {
        "gathered parameters": size * live,
        "second shards": second_shards(plan) * (1 - min(elements / base, 1)),
    }


def lies_whole(plan: Sharding) -> bool:
    """Whether a parameter's only shard is the parameter, so that gathering allocates nothing.

    deepspeed 0.19.8 `runtime/zero/partition_parameters.py`, `_no_gather_coalesced`.
    """
    return plan.shards == 1 and not plan.parameters_away
