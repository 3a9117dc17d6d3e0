"""What the moments of a step under FSDP are made of, and what is held at each of them."""

from typing import Final, NamedTuple

from tunec.compiler.analyses.memory.counts import main_layers
from tunec.compiler.analyses.memory.dtypes import BYTES
from tunec.compiler.analyses.memory.fsdp_units import Unit, Units, units_of
from tunec.compiler.analyses.memory.moments import At
from tunec.compiler.analyses.memory.sharding import Sharding
from tunec.compiler.analyses.memory.states import step_bytes
from tunec.compiler.analyses.memory.timeline import Sizes
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.ir.slots import Fsdp

FORWARDS: Final = (
    (At.TOWER, At.VISION_FORWARD),
    (At.LOSS_FORWARD, At.REFERENCE_LOSS),
    (At.EVALUATION, At.EVALUATION),
)
"""When what a forward pass ends with is whole: a tower's comes before the layers are gathered."""


class Whole(NamedTuple):
    """What is made whole in a pass that keeps nothing."""

    layers: Sizes = {}
    end: Sizes = {}
    """When the layers are done."""
    gathering: Sizes = {}
    """While a layer is copied out of the buffer that it came in."""
    begins: Sizes = {}
    """While the first layer is copied out of its buffer, where an embedding came before it."""


class Reduced(NamedTuple):
    """While gradients of a unit are reduced, or a layer in the middle is differentiated."""

    left: float
    """The share of the layers that the pass has not reached."""
    held: Sizes
    inside: bool
    """Whether a layer is being differentiated."""


class Run(NamedTuple):
    """What the moments are made of."""

    units: Units
    fsdp: Fsdp
    width: int
    """Bytes of one element of a whole gradient."""
    shard: float
    """Bytes that one trained element takes in a rank's reduced gradients as the pass goes.

    Version 1 keeps them to its end even where they are copied to the host (torch 2.13
    `_runtime_utils.py`, `_offload_grad`; `_flat_param.py`, `prepare_gradient_for_optim`)."""
    kept: float
    """Bytes that one trained element takes in a rank's reduced gradients when the pass is over."""
    passing: float
    """Bytes of one such element as it is summed, and as the optimizer then takes it."""
    waits: bool
    """Whether gradients of earlier micro batches wait unreduced."""
    shares: bool
    """Whether embedding and output projection are one weight."""
    tied: float
    """Bytes of the gradient of that weight, where it is trained."""
    head: float
    """Bytes of the gradient of an output projection of its own, where that is trained."""
    layers: int
    """Of the language model or the denoiser."""
    tiled: bool
    """Whether the loss is taken in tiles, outside of the output projection."""
    adapted: bool
    """Whether adapters have units of their own."""

    def gradient(self, unit: Unit) -> float:
        """Bytes of a unit's whole gradient."""
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


def run_of(workload: Workload, plan: Sharding) -> Run:
    """What FSDP makes of a plan."""
    mixed = plan.states.autocast
    units = units_of(workload, plan.fsdp, plan.states)
    if plan.fsdp.version == 1 and plan.fsdp.sharding == "none":
        units = _where_they_lie(units, trained=mixed)
    width = BYTES[workload.precision.compute] if mixed else plan.parameter
    shards = 1 if plan.fsdp.sharding == "none" else plan.shards
    if plan.fsdp.version == 1 and plan.fsdp.offload_params:
        units = _with_shards(units, shards) if _comes_as_it_is(workload, plan) else units
    goes_at_once = plan.fsdp.offload_params and plan.fsdp.version == 2
    kept = 0 if goes_at_once else plan.gradient / shards
    summed = width / shards if mixed else 0.0
    return Run(
        units=units,
        fsdp=plan.fsdp,
        width=width,
        shard=kept + (summed if _sums_replicas(plan.fsdp) else 0.0),
        kept=kept,
        passing=summed + plan.gradient / shards,
        waits=plan.accumulates,
        shares=workload.architecture.tied,
        tied=float(width * plan.counts.embedding if plan.counts.tied else 0),
        head=float(0 if plan.counts.tied else width * plan.counts.head),
        layers=main_layers(workload),
        tiled=workload.loss == "chunked",
        adapted=workload.adapter.kind != "none",
    )


def _sums_replicas(fsdp: Fsdp) -> bool:
    """Whether each unit keeps what it summed over replicas to the end of the pass.

    torch 2.13 `_fsdp_param_group.py`, `_all_reduce_state`: let go by `finalize_backward`.
    """
    return fsdp.version == 2 and fsdp.sharding == "hybrid"


def _where_they_lie(units: Units, *, trained: bool) -> Units:
    """Version 1 makes nothing whole that is not split, unless in another dtype.

    torch 2.13 `_flat_param.py`, `needs_unshard` and `_use_low_precision_shard`. `trained`: whether
    what is trained is copied to one; a frozen layer then is none of it.
    """
    whole = trained and units.root.trained > 0
    return Units(*(Unit(whole * unit.size, unit.trained) for unit in units))


def _comes_as_it_is(workload: Workload, plan: Sharding) -> bool:
    """Whether version 1 brings shards from the host in the dtype that is gathered.

    Its parameters then show that copy while their unit is whole; shards that are cast on the way
    are let go of (torch 2.13 `_flat_param.py`, `flat_param_to` and `_use_low_precision_shard`).
    """
    mixed, adapted = plan.states.autocast, workload.adapter.kind != "none"
    same = plan.states.weights == workload.precision.compute if mixed else True
    return plan.fsdp.use_orig_params and same and (adapted or not mixed)


def _with_shards(units: Units, shards: int) -> Units:
    """Whole units, each beside the shard that it was gathered from."""
    return Units(*(Unit(unit.size * (1 + 1 / shards), unit.trained) for unit in units))


def in_step(workload: Workload, plan: Sharding, run: Run) -> Sizes:
    """Gradients and temporaries while the optimizer steps, and what is still whole.

    A frozen unit of version 1 whose input needs no gradient is let go of by the next forward pass
    (traced).
    """
    whole = {"gathered parameters": _left_whole(plan, run)}
    if plan.fsdp.offload_params:
        return whole
    shards = 1 if plan.fsdp.sharding == "none" else plan.shards
    stepped = plan.counts.trainable / shards
    largest = -(-plan.counts.largest // shards)
    return {
        **whole,
        "gradients": run.kept * run.units.every.trained,
        "optimizer temporaries": step_bytes(
            workload.optimizer, plan.states, stepped, largest, workload.version("torch")
        ),
    }


def _left_whole(plan: Sharding, run: Run) -> float:
    lets_go = plan.fsdp.version == 1 and plan.fsdp.sharding in ("full", "hybrid")
    return run.units.root.size + run.units.layer.size if lets_go and run.adapted else 0.0
