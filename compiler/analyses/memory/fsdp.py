"""What FSDP holds on the device at each moment beside shards: whole units, gradients, buffers.

Sharded parameters are in their own dtype, fp32 where they are trained under mixed precision; a unit
is gathered in the compute dtype. The figures for version 2 are traced allocations of torch 2.13 and
accelerate 1.15 (`tunec trace`), which makes the embedding and the head units of their own (from
1.14 `utils/fsdp_utils.py`, `fsdp2_prepare_model`); those for version 1, whose root unit holds both,
follow its source (`torch/distributed/fsdp/_flat_param.py`, `_runtime_utils.py`).
"""

from typing import NamedTuple

from tunec.compiler.analyses.memory.dtypes import BYTES
from tunec.compiler.analyses.memory.fsdp_units import Unit, Units, units_of
from tunec.compiler.analyses.memory.phase import Terms
from tunec.compiler.analyses.memory.sharding import Sharding
from tunec.compiler.analyses.memory.states import step_bytes
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.ir.slots import Fsdp


class Held(NamedTuple):
    """Terms at each moment, in bytes."""

    forward: Terms
    at_loss: Terms
    at_last_layer: Terms
    at_first_layer: Terms
    at_embedding: Terms
    reductions: tuple[tuple[float, Terms], ...]
    """Each with the share of layers that are not differentiated yet."""
    gathering: tuple[float, Terms]
    """The highest copy out of a gather buffer, with the share of the layers that have run."""
    in_step: Terms


class _Run(NamedTuple):
    """What the moments are made of."""

    units: Units
    fsdp: Fsdp
    width: int
    """Bytes of one element of a whole gradient."""
    shard: float
    """Bytes that one trained element takes in a rank's reduced gradients as the pass goes."""
    kept: float
    """The same when the pass is over."""
    passing: float
    """The same while its unit is reduced: as it is summed, and made what the optimizer takes."""
    waits: bool
    """Whether gradients of earlier micro batches wait unreduced."""
    shares: bool
    """Whether embedding and output projection are one weight."""
    tied: float
    """Bytes of the gradient of that weight, where it is trained."""

    def gradient(self, unit: Unit) -> float:
        return self.width * unit.trained

    def reduced(self, *units: Unit) -> float:
        """A rank's gradients of everything but some units."""
        return self.shard * max(self.rest(*units), 0.0)

    def rest(self, *units: Unit) -> float:
        """Trained elements of everything but some units."""
        return self.units.every.trained - sum(unit.trained for unit in units)

    def waiting(self, *units: Unit) -> float:
        """Whole gradients of units from earlier micro batches."""
        return sum(map(self.gradient, units)) if self.waits else 0.0


def held(workload: Workload, plan: Sharding) -> Held:
    """What FSDP holds at each moment of a step."""
    run = _run(workload, plan)
    return Held(
        forward=_forward(run),
        at_loss={**_whole(run), "accumulated gradients": run.waiting(run.units.every)},
        at_last_layer=_last_layer(run),
        at_first_layer=_first_layer(run, plan),
        at_embedding=_embedding(run),
        reductions=_reductions(run, _layers(workload)),
        gathering=_gathering(run, _layers(workload)),
        in_step=_step(workload, plan, run),
    )


def _layers(workload: Workload) -> int:
    return max(sum(stack.layers for stack in workload.architecture.stacks), 1)


def _run(workload: Workload, plan: Sharding) -> _Run:
    mixed = plan.states.autocast
    units = units_of(workload, plan.fsdp, plan.states)
    if plan.fsdp.version == 1 and plan.fsdp.sharding == "none" and not mixed:
        units = _where_they_lie(units)
    width = BYTES[workload.precision.compute] if mixed else plan.parameter
    kept = 0 if plan.fsdp.offload_params else plan.gradient / plan.shards
    summed = width / plan.shards if mixed else 0.0
    return _Run(
        units=units,
        fsdp=plan.fsdp,
        width=width,
        shard=kept + (summed if _sums_replicas(plan.fsdp) else 0.0),
        kept=kept,
        passing=summed + plan.gradient / plan.shards,
        waits=plan.accumulates,
        shares=workload.architecture.tied,
        tied=float(width * plan.counts.embedding if plan.counts.tied else 0),
    )


def _sums_replicas(fsdp: Fsdp) -> bool:
    """Whether each unit keeps what it summed over replicas to the end of the pass.

    torch 2.13 `_fsdp_param_group.py`, `_all_reduce_state`: let go by `finalize_backward`.
    """
    return fsdp.version == 2 and fsdp.sharding == "hybrid"


def _where_they_lie(units: Units) -> Units:
    """Version 1 makes nothing whole that is not split, unless in another dtype.

    torch 2.13 `_flat_param.py`, `needs_unshard` and `_use_low_precision_shard`.
    """
    return Units(*(Unit(0.0, unit.trained) for unit in units))


def _keeps(run: _Run) -> bool:
    """Whether units stay whole from forward to backward."""
    return run.fsdp.sharding in ("grad_op", "none")


def _whole(run: _Run) -> Terms:
    """Units that are whole where forward turns to backward."""
    units = run.units
    kept = units.every.size if _keeps(run) else units.root.size + units.tail.size
    return {"gathered parameters": kept}


def _gather_buffer(run: _Run, unit: Unit) -> float:
    """Version 2 gathers into one buffer and copies out of it; version 1 into the unit itself."""
    return unit.size if run.fsdp.version == 2 else 0.0


def _forward(run: _Run) -> Terms:
    """At the loss: the last unit, and its buffer, which the next gathering would let go."""
    units = run.units
    last = units.layer if run.shares or not units.tail.size else units.tail
    return {
        **_whole(run),
        "gather buffer": _gather_buffer(run, last),
        "accumulated gradients": run.waiting(units.every),
    }


def _coming(run: _Run, following: Unit, *before: Unit) -> Terms:
    """The unit that is differentiated, and the one that is gathered ahead of its turn.

    `before`: units that the pass reaches later, which may still be whole since the forward pass.
    """
    whole = _whole_in_backward(run) + run.units.layer.size
    if _keeps(run):
        return {"gathered parameters": whole + sum(unit.size for unit in before)}
    ahead = following.size if run.fsdp.backward_prefetch != "none" else 0.0
    return {"gathered parameters": whole, "gather buffer": ahead}


def _whole_in_backward(run: _Run) -> float:
    """Bytes of what stays whole until the pass ends; a unit that is done is let go."""
    return run.units.root.size + (run.units.tail.size if run.shares else 0)


def _last_layer(run: _Run) -> Terms:
    """The head's gradient is being reduced; that of a tied one waits for the embedding's."""
    units = run.units
    held_back = 0.0 if run.shares else run.gradient(units.tail)
    rest = run.units.every.trained - units.tail.trained
    return {
        **_coming(run, units.layer, _rest_of_layers(run), units.embedding),
        "reduced copy": held_back,
        "gradients": run.shard * (0 if run.shares else units.tail.trained),
        "tied gradient": run.tied,
        "accumulated gradients": run.width * rest if run.waits else 0.0,
    }


def _first_layer(run: _Run, plan: Sharding) -> Terms:
    """The layer before is being reduced; most of this one's own gradients are there."""
    units = run.units
    own = run.gradient(units.layer) - run.width * plan.counts.late
    return {
        **_coming(run, units.embedding, units.embedding),
        "reduced copy": run.gradient(units.layer),
        "gradients": run.reduced(units.layer, units.embedding, units.root) + max(own, 0.0),
        "tied gradient": run.tied,
        "accumulated gradients": run.waiting(units.layer, units.embedding, units.root),
    }


def _embedding(run: _Run) -> Terms:
    """The embedding's gradient beside its parameters, or, when they are gone, beside its copy."""
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


def _sum(terms: Terms) -> float:
    return sum(terms.values())


def _head(run: _Run) -> Terms:
    """The output projection's gradient as it is made, and as it is reduced, whichever is more.

    Its last parameter's gradient outlives the copy by a name (torch 2.13 `_fsdp_collectives.py`,
    `foreach_reduce`: `unsharded_grad`).
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


def _last_unit(run: _Run) -> Unit:
    """The unit whose gradient comes last: the embedding's, the tied tail's or the root's."""
    units = run.units
    if run.shares and units.tail.trained:
        return units.tail
    return units.embedding if units.embedding.trained else units.root


def _rest_of_layers(run: _Run) -> Unit:
    """All layers but one."""
    units = run.units
    ends = units.root.size + units.tail.size + units.embedding.size
    return Unit(max(units.every.size - ends - units.layer.size, 0.0), 0.0)


def _reductions(run: _Run, layers: int) -> tuple[tuple[float, Terms], ...]:
    """When a layer is done, before its gradients are copied: the last two and the second.

    With each the share of the layers that the pass has not reached.
    """
    units = run.units
    done = {
        **_coming(run, units.layer, _rest_of_layers(run), units.embedding),
        "largest gradient": run.gradient(units.layer) + run.waiting(units.layer),
        "tied gradient": run.tied,
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


def _gathering(run: _Run, layers: int) -> tuple[float, Terms]:
    """While a unit is copied out of its buffer: the buffer before it is let go only then.

    torch 2.13 `_fsdp_param_group.py`, `wait_for_unshard`: a name holds it to the end.
    """
    units = run.units
    if run.fsdp.version == 1 or _keeps(run):
        return 0.0, {}
    ends = 0.0 if run.shares else units.layer.size + 2 * units.tail.size
    kept = units.root.size + (units.tail.size if run.shares else 0.0)
    share = 1.0 if ends > 3 * units.layer.size else 1 - 1 / layers
    return share, {
        "gathered parameters": kept,
        "gather buffer": max(3 * units.layer.size, ends),
        "accumulated gradients": run.waiting(units.every),
    }


def _step(workload: Workload, plan: Sharding, run: _Run) -> Terms:
    if plan.fsdp.offload_params:
        return {}
    stepped = plan.counts.trainable / plan.shards
    largest = -(-plan.counts.largest // plan.shards)
    return {
        "gradients": run.kept * run.units.every.trained,
        "optimizer temporaries": step_bytes(workload.optimizer, plan.states, stepped, largest),
    }
