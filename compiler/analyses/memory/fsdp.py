"""What FSDP holds on the device at each moment beside shards: whole units, gradients, buffers.

Sharded parameters are in their own dtype, fp32 where they are trained under mixed precision; a unit
is gathered in the compute dtype. The figures for version 2 are traced allocations of torch 2.13 and
accelerate 1.15 (`tunec trace`), which makes the embedding and the head units of their own (from
1.14 `utils/fsdp_utils.py`, `fsdp2_prepare_model`); those for version 1, whose root unit holds both,
follow its source (`torch/distributed/fsdp/_flat_param.py`, `_runtime_utils.py`).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple

from packaging.version import Version

from tunec.compiler.analyses.memory.counts import FOUR_BIT, adapter_elements, quantizes
from tunec.compiler.analyses.memory.dtypes import BYTES
from tunec.compiler.analyses.memory.phase import Terms
from tunec.compiler.analyses.memory.sharding import Sharding
from tunec.compiler.analyses.memory.states import step_bytes
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.ir.slots import Fsdp, States
from tunec.schemas.models.architecture import Module
from tunec.schemas.terms import FloatDtype

_OWN_UNITS: Final = Version("1.14")
"""The first accelerate that makes the embedding and the head units of their own."""
_PACKED: Final = 0.5
"""Bytes of a 4-bit element; scales are no parameters, and stay whole on each rank."""


class Unit(NamedTuple):
    """What is gathered together, in bytes of the gathered copy, and its trained elements."""

    size: float
    trained: float


class Units(NamedTuple):
    """The units of a model."""

    layer: Unit
    """The largest of those that repeat."""
    embedding: Unit
    """Nothing where the output projection shares its weight, or the root holds it."""
    tail: Unit
    """The output projection, the final norm, and an embedding that shares the weight."""
    root: Unit
    """All that is in no other unit."""
    every: Unit


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


def computed_states(states: States, compute: FloatDtype, fsdp: Fsdp) -> States:
    """The dtypes in which a forward pass meets the parameters: those of the gathered copies."""
    if not fsdp.version or not states.autocast:
        return states
    return replace(states, weights=compute, trainable=compute)


@lru_cache(maxsize=512)
def units_of(workload: Workload, fsdp: Fsdp, states: States) -> Units:
    """The units into which accelerate cuts a model."""
    model, size = workload.architecture, _sizes(workload, states)
    layers: dict[str, list[float]] = {}
    whole, inside = [0.0, 0.0], [0.0, 0.0]
    ends = {"embedding": [0.0, 0.0], "tail": [0.0, 0.0]}
    for module in model.modules:
        gathered, learnt = size(module)
        whole[0] += gathered
        whole[1] += learnt
        prefix, repeats, _ = module.path.partition("{}")
        if repeats and fsdp.wrap != "none":
            number = len({place[0] for place in module.places()})
            found = layers.setdefault(prefix, [0.0, 0.0])
            found[0] += gathered / number
            found[1] += learnt / number
            inside[0] += gathered
            inside[1] += learnt
        elif _has_ends(workload, fsdp):
            end = _end(workload, module)
            if end:
                ends[end][0] += gathered
                ends[end][1] += learnt
    largest = max(layers.values(), default=[0.0, 0.0])
    spent = [inside[i] + ends["embedding"][i] + ends["tail"][i] for i in (0, 1)]
    return Units(
        layer=Unit(*largest),
        embedding=Unit(*ends["embedding"]),
        tail=Unit(*ends["tail"]),
        root=Unit(*(max(whole[i] - spent[i], 0.0) for i in (0, 1))),
        every=Unit(*whole),
    )


def _has_ends(workload: Workload, fsdp: Fsdp) -> bool:
    version = workload.version("accelerate")
    return fsdp.version == 2 and (version is None or version >= _OWN_UNITS)


def _end(workload: Workload, module: Module) -> str | None:
    """Which end of the model a module is, if any."""
    model = workload.architecture
    if module.path == model.embedding:
        return "tail" if model.tied else "embedding"
    adapted = workload.adapter.kind != "none"
    final = module.kind == "norm" and not adapted and module.part == "text"
    return "tail" if module.path == model.head or final else None


def _sizes(workload: Workload, states: States) -> Callable[[Module], tuple[float, float]]:
    """How many gathered bytes and trained elements a module has, over all copies."""
    carried = {id(each) for each in workload.adapted}
    taught = {id(each) for each in workload.trained}
    mixed = BYTES[workload.precision.compute] if states.autocast else 0

    def size(module: Module) -> tuple[float, float]:
        base, learnt = module.parameters, module.parameters if id(module) in taught else 0
        adapters = adapter_elements(workload, module) if id(module) in carried else 0
        width = mixed or BYTES[states.trainable if learnt else states.weights]
        packed = workload.quantization.format in FOUR_BIT and quantizes(workload, module)
        return (
            base * (_PACKED if packed else width) + adapters * (mixed or BYTES[states.trainable]),
            learnt + adapters,
        )

    return size


# ── moments of a step ────────────────────────────────────────────────────────────────────────────


class _Run(NamedTuple):
    """What the moments are made of."""

    units: Units
    fsdp: Fsdp
    width: int
    """Bytes of one element of a whole gradient."""
    shard: float
    """Bytes that one trained element takes in a rank's reduced gradients."""
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
        rest = self.units.every.trained - sum(unit.trained for unit in units)
        return self.shard * max(rest, 0.0)

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
    width = BYTES[workload.precision.compute] if mixed else plan.parameter
    kept = 0 if plan.fsdp.offload_params else plan.gradient / plan.shards
    return _Run(
        units=units,
        fsdp=plan.fsdp,
        width=width,
        shard=kept,
        waits=plan.accumulates,
        shares=workload.architecture.tied,
        tied=float(width * plan.counts.embedding if plan.counts.tied else 0),
    )


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
    out = last.trained * (run.width / max(_ranks(run), 1) + run.shard)
    reduced = {
        "largest gradient": run.gradient(last),
        "reduced copy": run.gradient(last),
        "gradients": run.reduced(last) + out,
    }
    return max(made, reduced, key=lambda terms: sum(terms.values()))


def _ranks(run: _Run) -> float:
    return 4 / run.shard if run.shard else 1.0


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
    return tuple(
        (1 - at / layers, {**terms, "accumulated gradients": waits * (1 - at / layers)})
        for at, terms in moments
        if at <= layers
    )


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
        "gradients": run.reduced(),
        "optimizer temporaries": step_bytes(workload.optimizer, plan.states, stepped, largest),
    }
