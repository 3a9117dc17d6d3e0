"""The memory that FSDP needs at each moment besides shards: whole units, gradients, buffers.

Sharded parameters keep their own dtype, which is fp32 if they are trained under mixed precision; a
unit is gathered in the compute dtype. The figures for version 2 are traced allocations of torch
2.13 and accelerate 1.15 (`tunec trace`), which makes the embedding and the head separate units
(from 1.14 `utils/fsdp_utils.py`, `fsdp2_prepare_model`); the memory of version 1 is in `fsdp_flat`.
"""

from collections.abc import Iterator

from tunec.compiler.analyses.memory.sharding import Sharding
from tunec.compiler.analyses.memory.terms.fsdp_flat import (
    flat_begun,
    flat_first_layer,
    flat_in_passing,
    flat_reductions,
    flat_terms,
)
from tunec.compiler.analyses.memory.terms.fsdp_units import (
    FORWARDS,
    ReductionMoment,
    Run,
    Unit,
    Whole,
    in_step,
    run_of,
)
from tunec.compiler.analyses.memory.timeline import At, Sizes, Term, lasting, reduction
from tunec.compiler.analyses.memory.workload import Workload


def fsdp_terms(
    workload: Workload, plan: Sharding, *, checkpointed: bool, dora: bool
) -> Iterator[Term]:
    """Whole units, gradients and buffers, each with its lifetime."""
    run = run_of(workload, plan)
    flat = plan.fsdp.version == 1
    yield from flat_terms(run) if flat else _of_units(run)
    first = flat_first_layer(run, plan.counts) if flat else _first_layer(run, plan)
    yield from lasting(first, At.ALL_REDUCED, At.VISION_BACKWARD)
    if dora:
        yield from lasting(first, At.NORMS, At.NORMS)
    waiting = {"accumulated gradients": run.waiting(run.units.every)}
    yield from lasting(waiting, At.FORWARD, At.LOSS_BACKWARD)
    for number, one in enumerate(reduced(run, plan, checkpointed=checkpointed), 1):
        moment = reduction(number, one.left)
        yield from lasting(one.held, moment, moment)
    yield from lasting(in_step(workload, plan, run), At.STEP, At.STEP)


def reduced(run: Run, plan: Sharding, *, checkpointed: bool) -> tuple[ReductionMoment, ...]:
    """The moments inside a backward pass, in the order of their numbers."""
    if plan.fsdp.version == 1:
        done, begun = flat_reductions(run), flat_begun(run, plan.counts)
    else:
        done, begun = _reductions(run, run.layers), _begun(run, plan)
    again = checkpointed / run.layers
    return (
        *(ReductionMoment(left, held, inside=False) for left, held in done),
        *(ReductionMoment(left + again, held, inside=True) for left, held in begun),
    )


def _of_units(run: Run) -> Iterator[Term]:
    """Terms of version 2 at the moments that depend on neither micro batch nor recomputation."""
    for born, freed in FORWARDS:
        yield from lasting(_forward(run), born, freed)
    yield from lasting(_at_loss(run), At.LOSS_BACKWARD, At.LOSS_BACKWARD)
    yield from lasting(_last_layer(run), At.LAST_LAYER, At.EXPANSION)
    yield from lasting(_embedding(run), At.EMBEDDING, At.EMBEDDING)
    begins, (share, gathering) = _begins(run), _gathering(run, run.layers)
    moment = At.GATHERING._replace(layers=share)
    yield from lasting(begins, At.FIRST_GATHERING, At.FIRST_GATHERING)
    yield from lasting(gathering, moment, moment)
    yield from lasting(_again(run), At.ROOT_GATHERING, At.ROOT_GATHERING)


def whole_in_passing(workload: Workload, plan: Sharding) -> Whole:
    """The units that FSDP gathers in a pass that keeps nothing."""
    run = run_of(workload, plan)
    if plan.fsdp.version == 1:
        return flat_in_passing(run)
    return Whole(_in_layer(run), _forward(run), _gathering(run, run.layers)[1], _begins(run))


def _keeps(run: Run) -> bool:
    """Whether units stay gathered from forward to backward."""
    return run.fsdp.sharding in ("grad_op", "none")


def _whole(run: Run) -> Sizes:
    """The units that are gathered at the turn from forward to backward."""
    units = run.units
    kept = units.every.size if _keeps(run) else units.root.size + units.tail.size
    return {"gathered parameters": kept}


def _gather_buffer(run: Run, unit: Unit) -> float:
    """Bytes of a unit's gather buffer in version 2; version 1 gathers into the unit itself."""
    return unit.size if run.fsdp.version == 2 else 0.0


def _forward(run: Run) -> Sizes:
    """Sizes at the loss: the last unit, and its buffer, which the next gathering would free."""
    units = run.units
    last = units.layer if run.shares or run.by != "unit" or not units.tail.size else units.tail
    return {
        **_whole(run),
        "gather buffer": _gather_buffer(run, last),
    }


def _at_loss(run: Run) -> Sizes:
    """Sizes at the start of the backward pass.

    If the loss is computed in tiles, or the head is in the root unit, the last layer is gathered by
    then: the first gradient is that of the root unit's own result (torch 2.13 `_fsdp_state.py`,
    `_register_pre_backward_hook`).
    """
    comes = run.tiled or not run.units.tail.size
    ahead = comes and not _keeps(run) and run.fsdp.backward_prefetch != "none"
    return {
        **_whole(run),
        "gather buffer": run.units.layer.size * ahead,
    }


def _again(run: Run) -> Sizes:
    """Sizes when a root unit that holds both ends is gathered for the backward pass.

    Before 1.14 accelerate had the root unit freed after the forward pass (1.13
    `utils/fsdp_utils.py`, `fsdp2_prepare_model`: `reshard_after_forward` of all units).
    """
    if _keeps(run) or run.units.tail.size or run.shares or run.by == "host":
        return {}
    size = run.units.root.size
    waiting = {"accumulated gradients": run.waiting(run.units.every)}
    return {"gathered parameters": size, "gather buffer": size, **waiting}


def _coming(run: Run, following: Unit, *before: Unit) -> Sizes:
    """The unit that is differentiated, and the unit that is prefetched.

    `before`: units that the pass reaches later, which may still be gathered since the forward pass.
    """
    whole = _whole_in_backward(run) + run.units.layer.size
    if _keeps(run):
        return {"gathered parameters": whole + sum(unit.size for unit in before)}
    ahead = following.size if run.fsdp.backward_prefetch != "none" else 0.0
    return {"gathered parameters": whole, "gather buffer": ahead}


def _whole_in_backward(run: Run) -> float:
    """Bytes of units that stay gathered until the pass ends; other units are freed when done."""
    return run.units.root.size + (run.units.tail.size if run.shares else 0)


def _last_layer(run: Run) -> Sizes:
    """Sizes while the head's gradient is reduced; a tied one waits for the embedding's."""
    units = run.units
    held_back = 0.0 if run.shares else run.gradient(units.tail)
    rest = run.units.every.trained - units.tail.trained
    return {
        **_coming(run, units.layer, _rest_of_layers(run), units.embedding),
        "reduced copy": held_back,
        "gradients": run.shard * (0 if run.shares else units.tail.trained),
        "tied gradient": run.tied,
        "waiting gradients": _of_root(run),
        "accumulated gradients": run.width * rest if run.waits else 0.0,
    }


def _first_layer(run: Run, plan: Sharding) -> Sizes:
    """Sizes while the layer before is reduced, with most of the first layer's own gradients."""
    units = run.units
    own = run.gradient(units.layer) - _late(run, plan)
    return {
        **_coming(run, units.embedding, units.embedding),
        "reduced copy": run.gradient(units.layer),
        "gradients": run.reduced(units.layer, units.embedding, units.root) + max(own, 0.0),
        "tied gradient": run.tied,
        "waiting gradients": _of_root(run),
        "accumulated gradients": run.waiting(units.layer, units.embedding, units.root),
    }


def _of_root(run: Run) -> float:
    """Bytes of the output projection's gradient if the root unit, reduced last, holds it."""
    return 0.0 if run.units.tail.size else run.head


def _begun(run: Run, plan: Sharding) -> tuple[tuple[float, Sizes], ...]:
    """Sizes in the second layer with the first prefetched, and the share of layers to come."""
    if run.layers < 3:
        return ()
    units = run.units
    rest = (units.layer, units.layer, units.embedding, units.root)
    terms = {
        **_first_layer(run, plan),
        **_coming(run, units.layer, units.layer, units.embedding),
        "gradients": run.reduced(*rest) + max(run.gradient(units.layer) - _late(run, plan), 0.0),
        "accumulated gradients": run.waiting(*rest),
    }
    return ((1 / run.layers, terms),)


def _late(run: Run, plan: Sharding) -> float:
    """Bytes of a layer's gradients that come after those of its feed-forward."""
    return float(run.width * plan.counts.late)


def _embedding(run: Run) -> Sizes:
    """The embedding's gradient with its parameters or, after they are freed, with its copy."""
    units = run.units
    last = _last_unit(run)
    own = run.gradient(last) + run.waiting(last)
    made = {
        "gathered parameters": _whole_in_backward(run) + units.embedding.size,
        "largest gradient": own,
        "reduced copy": run.gradient(units.layer),
        "gradients": run.reduced(last),
        "tied gradient": 2 * run.tied,
    }
    reduced = {
        "largest gradient": run.gradient(last),
        "reduced copy": run.gradient(last),
        "gradients": run.reduced(last) + run.passing * last.trained,
    }
    return max(made, reduced, key=_sum)


def _sum(terms: Sizes) -> float:
    return sum(terms.values())


def _head(run: Run) -> Sizes:
    """The output projection's gradient while it is computed or while it is reduced, the larger.

    The gradient of its last parameter outlives the copy, since a variable still refers to it (torch
    2.13 `_fsdp_collectives.py`, `foreach_reduce`: `unsharded_grad`).
    """
    units, whole = run.units, _whole_in_backward(run)
    if _keeps(run):
        whole += units.embedding.size + units.layer.size + _rest_of_layers(run).size
    ahead = 0.0 if _keeps(run) or run.fsdp.backward_prefetch == "none" else units.layer.size
    made = {
        "gathered parameters": whole + units.tail.size,
        "gather buffer": ahead,
        "largest gradient": run.gradient(units.tail),
        "accumulated gradients": run.waiting(units.every),
    }
    reduced = {
        "gathered parameters": whole,
        "gather buffer": ahead,
        "largest gradient": run.gradient(units.tail),
        "reduced copy": run.gradient(units.tail),
        "gradients": run.passing * units.tail.trained,
        "accumulated gradients": run.width * run.rest(units.tail) if run.waits else 0.0,
    }
    return max(made, reduced, key=_sum)


def _last_unit(run: Run) -> Unit:
    """The unit whose gradient comes last: the embedding, the tied tail or the root."""
    units = run.units
    if run.shares and units.tail.trained:
        return units.tail
    return units.embedding if units.embedding.trained else units.root


def _rest_of_layers(run: Run) -> Unit:
    """All layers except one."""
    units = run.units
    ends = units.root.size + units.tail.size + units.embedding.size
    return Unit(max(units.every.size - ends - units.layer.size, 0.0), 0.0)


def _reductions(run: Run, layers: int) -> tuple[tuple[float, Sizes], ...]:
    """Sizes when a layer is done, before its gradients are copied: the last two and the second.

    Each comes with the share of the layers that the pass has not reached.
    """
    units = run.units
    done = {
        **_coming(run, units.layer, _rest_of_layers(run), units.embedding),
        "largest gradient": run.gradient(units.layer) + run.waiting(units.layer),
        "tied gradient": run.tied,
        "waiting gradients": _of_root(run),
    }
    own = run.gradient(units.layer)
    first = {**done, "reduced copy": 0.0 if run.shares else run.gradient(units.tail)}
    second = {**done, "reduced copy": own, "gradients": run.shard * units.layer.trained}
    late = {
        **done,
        **_coming(run, units.layer, units.layer, units.embedding),
        "reduced copy": own,
        "gradients": run.reduced(units.layer, units.layer, units.embedding, units.root),
    }
    moments = ((1, first), (2, second), (max(layers - 1, 1), late))
    waits = run.waiting(units.every)
    of_layers = tuple(
        (1 - at / layers, {**terms, "accumulated gradients": waits * (1 - at / layers)})
        for at, terms in moments
        if at <= layers
    )
    alone = units.tail.trained and not run.shares
    return (*of_layers, (1.0, _head(run))) if alone else of_layers


def _begins(run: Run) -> Sizes:
    """When the first layer is copied out of its buffer, and a tied embedding's is held still.

    One of its own is let go of by then, unless all are kept; it came beside the root's buffer.
    """
    units = run.units
    root, own, layer = units.root.size, units.embedding.size, units.layer.size
    if not run.shares and own > layer:
        made = {"gathered parameters": root + own, "gather buffer": root + own}
        kept = own * _keeps(run)
        then = {"gathered parameters": root + kept + layer, "gather buffer": own + layer}
        return max(made, then, key=_sum)
    if _keeps(run) or not run.shares or units.tail.size <= layer:
        return {}
    both = units.tail.size + layer
    return {"gathered parameters": root + both, "gather buffer": both}


def _in_layer(run: Run) -> Sizes:
    """A layer and its buffer besides the units that stay gathered; a separate head comes later."""
    units = run.units
    if _keeps(run):
        return {**_whole(run), "gather buffer": _gather_buffer(run, units.layer)}
    kept = units.root.size + (units.tail.size if run.shares else 0.0)
    return {
        "gathered parameters": kept + units.layer.size,
        "gather buffer": _gather_buffer(run, units.layer),
    }


def _gathering_kept(run: Run, layers: int) -> tuple[float, Sizes]:
    """The gathered units: at the last layer, or at a separate head behind it."""
    every, layer = run.units.every.size, run.units.layer.size
    tail = 0.0 if run.shares else run.units.tail.size
    if 2 * tail > layer and run.by == "unit":
        return 1.0, {"gathered parameters": every, "gather buffer": layer + tail}
    return 1 - 1 / layers, {"gathered parameters": every - tail, "gather buffer": 2 * layer}


def _gathering(run: Run, layers: int) -> tuple[float, Sizes]:
    """Sizes while a unit is copied out of its buffer; only then the buffer before it is freed.

    torch 2.13 `_fsdp_param_group.py`, `wait_for_unshard`: a variable holds the buffer to the end. A
    root unit that holds both ends is the largest, and comes first.
    """
    units = run.units
    if run.fsdp.sharding == "none":
        return 0.0, {}
    if _keeps(run):
        return _gathering_kept(run, layers)
    if units.root.size > units.layer.size:
        whole = {"gathered parameters": units.root.size + units.layer.size}
        buffers = {"gather buffer": units.root.size + units.layer.size}
        return 0.0, {**whole, **buffers}
    ends = 0.0 if run.shares or run.by != "unit" else units.layer.size + 2 * units.tail.size
    kept = units.root.size + (units.tail.size if run.shares else 0.0)
    share = 1.0 if ends > 3 * units.layer.size else 1 - 1 / layers
    return share, {
        "gathered parameters": kept,
        "gather buffer": max(3 * units.layer.size, ends),
    }
