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
from tunec.compiler.analyses.memory.terms.fsdp_forward import (
    at_first_gathering,
    at_gathering,
    at_loss_forward,
    in_layer,
    keeps,
    whole_at_turn,
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
from tunec.compiler.analyses.memory.timeline import At, Sizes, Term, lasting, reduction, total
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
        yield from lasting(at_loss_forward(run), born, freed)
    yield from lasting(_at_loss(run), At.LOSS_BACKWARD, At.LOSS_BACKWARD)
    if run.trains_head:
        yield from lasting(_head(run), At.HEAD, At.HEAD)
    yield from lasting(_last_layer(run), At.LAST_LAYER, At.EXPANSION)
    yield from lasting(_embedding(run), At.EMBEDDING, At.EMBEDDING)
    begins, (share, gathering) = at_first_gathering(run), at_gathering(run, run.layers)
    moment = At.GATHERING._replace(layers=share)
    yield from lasting(begins, At.FIRST_GATHERING, At.FIRST_GATHERING)
    yield from lasting(gathering, moment, moment)
    yield from lasting(_again(run), At.ROOT_GATHERING, At.ROOT_GATHERING)


def whole_in_passing(workload: Workload, plan: Sharding) -> Whole:
    """The units that FSDP gathers in a pass that keeps nothing."""
    run = run_of(workload, plan)
    if plan.fsdp.version == 1:
        return flat_in_passing(run)
    return Whole(
        in_layer(run),
        at_loss_forward(run),
        at_gathering(run, run.layers)[1],
        at_first_gathering(run),
    )


def _at_loss(run: Run) -> Sizes:
    """Sizes at the start of the backward pass.

    If the loss is computed in tiles, or the head is in the root unit, the last layer is gathered by
    then: the first gradient is that of the root unit's own result (torch 2.13 `_fsdp_state.py`,
    `_register_pre_backward_hook`).
    """
    comes = run.tiled or not run.units.tail.size
    ahead = comes and not keeps(run) and run.fsdp.backward_prefetch != "none"
    return {
        **whole_at_turn(run),
        "gather buffer": run.units.layer.size * ahead,
    }


def _again(run: Run) -> Sizes:
    """Sizes when a root unit that holds both ends is gathered for the backward pass.

    Before 1.14 accelerate had the root unit freed after the forward pass (1.13
    `utils/fsdp_utils.py`, `fsdp2_prepare_model`: `reshard_after_forward` of all units).
    """
    if keeps(run) or run.units.tail.size or run.shares or run.by == "host":
        return {}
    size = run.units.root.size
    waiting = {"accumulated gradients": run.waiting(run.units.every)}
    return {"gathered parameters": size, "gather buffer": size, **waiting}


def _coming(run: Run, following: Unit, *before: Unit) -> Sizes:
    """The unit that is differentiated, and the unit that is prefetched.

    `before`: units that the pass reaches later, which may still be gathered since the forward pass.
    """
    whole = _whole_in_backward(run) + run.units.layer.size
    if keeps(run):
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
    return {
        **_coming(run, units.layer, _rest_of_layers(run), units.embedding),
        "reduced copy": held_back,
        "gradients": run.shard * (0 if run.shares else units.tail.trained),
        "tied gradient": run.tied,
        "waiting gradients": _of_root(run),
        "accumulated gradients": run.waiting_besides(*_reduced_head(run)),
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
        "accumulated gradients": run.waiting(units.layer, *_last_units(run)),
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
        "accumulated gradients": run.waiting(units.layer, units.layer, *_last_units(run)),
    }
    return ((1 / run.layers, terms),)


def _late(run: Run, plan: Sharding) -> float:
    """Bytes of a layer's gradients that come after those of its feed-forward."""
    return float(run.width * plan.counts.late)


def _embedding(run: Run) -> Sizes:
    """The embedding's gradient with its parameters or, after they are freed, with its copy.

    Or in a micro batch before the last: then no gradient of the layers is reduced.
    """
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
    unreduced = {
        "gathered parameters": made["gathered parameters"],
        "largest gradient": run.gradient(last) * run.adds,
        "tied gradient": 2 * run.tied,
        "accumulated gradients": run.waiting(units.every),
    }
    return max(made, reduced, unreduced, key=total)


def _head(run: Run) -> Sizes:
    """Sizes when the output projection's gradient is computed; a tied one is reduced later."""
    own = 0.0 if run.shares else run.units.tail.size
    return {
        **_beside_head(run, own),
        "largest gradient": 0.0 if run.shares else max(run.gradient(run.units.tail), run.head),
        "tied gradient": run.tied,
        "accumulated gradients": run.waiting(run.units.every),
    }


def _head_reduced(run: Run) -> Sizes:
    """The output projection's gradient while it is reduced.

    The gradient of its last parameter outlives the copy, since a variable still refers to it (torch
    2.13 `_fsdp_collectives.py`, `foreach_reduce`: `unsharded_grad`).
    """
    tail = run.units.tail
    return {
        **_beside_head(run, 0.0),
        "largest gradient": run.gradient(tail),
        "reduced copy": run.gradient(tail),
        "gradients": run.passing * tail.trained,
        "accumulated gradients": run.waiting_besides(tail),
    }


def _beside_head(run: Run, own: float) -> Sizes:
    """The gathered units beside the output projection's `own` bytes, and the prefetched layer."""
    units, whole = run.units, _whole_in_backward(run) + own
    if keeps(run):
        whole += units.embedding.size + units.layer.size + _rest_of_layers(run).size
    ahead = 0.0 if keeps(run) or run.fsdp.backward_prefetch == "none" else units.layer.size
    return {"gathered parameters": whole, "gather buffer": ahead}


def _reduced_head(run: Run) -> tuple[Unit, ...]:
    """The unit of the output projection, if it is reduced before the layers are differentiated."""
    return () if run.shares else (run.units.tail,)


def _last_units(run: Run) -> tuple[Unit, ...]:
    """The units that are reduced after the first layer."""
    units = run.units
    return (units.embedding, units.root, *((units.tail,) if run.shares else ()))


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
    """Sizes when a layer is done, before its gradients are copied: the last two, the first two.

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
    final = {
        **late,
        **_coming(run, units.embedding, units.embedding),
        "gradients": run.reduced(units.layer, *_last_units(run)),
    }
    moments = ((1, first), (2, second), (max(layers - 1, 1), late), (layers, final))
    head = _reduced_head(run)
    of_layers = tuple(
        (1 - at / layers, {**terms, "accumulated gradients": run.waiting_besides(*head, done)})
        for at, terms in moments
        if at <= layers
        for done in (Unit(0.0, at * units.layer.trained),)
    )
    alone = units.tail.trained and not run.shares
    return (*of_layers, (1.0, _head_reduced(run))) if alone else of_layers
