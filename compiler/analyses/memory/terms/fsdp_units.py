"""The units into which FSDP splits a model, each gathered as a whole, and their sizes in a step.

The ends of a model are in `fsdp_ends`; the root unit of version 1 holds both ends.
"""

import re
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from packaging.version import Version

from tunec.compiler.analyses.memory.counts import main_layers
from tunec.compiler.analyses.memory.modules import (
    BYTES,
    FOUR_BIT,
    PACKED,
    adapter_elements,
    quantizes,
)
from tunec.compiler.analyses.memory.sharding import Sharding
from tunec.compiler.analyses.memory.terms.fsdp_ends import NEMO, Head, end_of, has_ends, head_of
from tunec.compiler.analyses.memory.terms.optimizer import step_bytes
from tunec.compiler.analyses.memory.timeline import At, Sizes
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.ir.slots import ActivationCheckpointing, Fsdp, States
from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Architecture, Module
from tunec.schemas.terms import FloatDtype

_MADE_FP32: Final = Version("1.6"), Version("1.13")
"""The accelerate releases that make every parameter fp32 under version 2 where precision is mixed,
frozen ones too (`utils/fsdp_utils.py`, `fsdp2_prepare_model`: `model.to(torch.float32)`; read in
the wheels 1.6.0, 1.10.1, 1.11.0, 1.12.0, 1.13.0, 1.14.0 and 1.15.0; accelerate issue 3844)."""


def makes_fp32(workload: Workload, fsdp: Fsdp, states: States) -> bool:
    """Whether a frozen base is stored in fp32 shards, whatever dtype it was loaded in."""
    version, (first, last) = workload.version("accelerate"), _MADE_FP32
    between = version is not None and first <= version < last
    return fsdp.version == 2 and states.autocast and between


def retains_inputs(workload: Workload, checkpointing: ActivationCheckpointing, fsdp: Fsdp) -> bool:
    """Whether inputs of recomputed layers, and their gradients, live until the pass ends.

    Version 1 hooks the inputs of each frozen unit to know when it may free the unit (torch 2.13
    `distributed/fsdp/_runtime_utils.py`, `_register_post_backward_reshard_only_hook`). The hook
    holds them until the pass is done, and reentrant recomputation makes each a leaf, whose gradient
    autograd stores in it. Frozen units are those of a base whose adapters are separate units, as
    peft's policy makes them (transformers 5.23 `distributed/fsdp.py`, `update_fsdp_plugin_peft`).
    """
    by_trainer = checkpointing.mode != "none" and checkpointing.reentrant and not fsdp.checkpointing
    return fsdp.version == 1 and by_trainer and workload.adapter.kind != "none"


def retained(kept: Sizes, layers: int) -> Sizes:
    """Bytes per sample that the other layers still hold while the first layer is differentiated."""
    inputs = sum(size for name, size in kept.items() if name.endswith(" layer inputs"))
    others = inputs * (1 - 1 / max(layers, 1))
    return {"retained layer inputs": others, "gradients of layer inputs": others}


class Unit(NamedTuple):
    """Parameters that are gathered together: bytes of the gathered copy, and trained elements."""

    size: float
    trained: float

    def times(self, factor: float) -> "Unit":
        """The unit with its gathered bytes multiplied by a factor."""
        return Unit(factor * self.size, self.trained)


class Units(NamedTuple):
    """The units of a model."""

    layer: Unit
    """The largest of the repeated units."""
    embedding: Unit
    """The embedding; empty if the output projection shares its weight, or if the root holds it."""
    tail: Unit
    """The output projection, the final norm, and an embedding that shares the weight."""
    root: Unit
    """All parameters that are in no other unit."""
    every: Unit


def computed_states(states: States, workload: Workload, fsdp: Fsdp) -> States:
    """The dtypes of parameters in a forward pass, which are those of the gathered copies.

    An adapter that is a separate unit, as peft requests of version 1, is gathered only after its
    dtype, that of its shards, was read: its input is cast to this dtype and back (peft 0.21
    `tuners/lora/layer.py`, `Linear.forward`; torch 2.13 `distributed/fsdp/_runtime_utils.py`,
    `_pre_forward`).
    """
    if not fsdp.version or not states.autocast:
        return states
    compute: FloatDtype = workload.precision.compute
    if workload.adapted and fsdp.version == 1:
        return replace(states, weights=compute)
    casts = runs_under_autocast(workload, fsdp, states)
    return replace(states, weights=compute, trainable=compute, autocast=casts)


def runs_under_autocast(workload: Workload, fsdp: Fsdp, states: States) -> bool:
    """Whether torch's autocast is on in the forward pass where precision is mixed.

    Under version 2, accelerate wraps no forward pass, so that the dtype of gathered parameters
    decides alone (1.6.0 to 1.15.0 `accelerator.py`, `_prepare_fsdp2`; seen in a run). verl has a
    context of its own (0.8.0 to 0.9.1 `workers/engine/fsdp/transformer_impl.py`, `forward_step`).
    """
    return states.autocast and (fsdp.version != 2 or workload.version("verl") is not None)


@cached(512)
def units_of(workload: Workload, fsdp: Fsdp, states: States) -> Units:
    """The units into which accelerate splits a model."""
    model, size = workload.architecture, _sizes(workload, states)
    layers: dict[tuple[str, tuple[int, ...]], list[float]] = {}
    whole, inside = [0.0, 0.0], [0.0, 0.0]
    ends = {"embedding": [0.0, 0.0], "tail": [0.0, 0.0]}
    for module in model.modules:
        gathered, learnt = size(module)
        whole[0] += gathered
        whole[1] += learnt
        unit = _unit_path(model, module.path)
        if unit and fsdp.wrap != "none":
            depth = unit.count("{}")
            places = {place[:depth] for place in module.places()}
            for place in places:
                found = layers.setdefault((unit, place), [0.0, 0.0])
                found[0] += gathered / len(places)
                found[1] += learnt / len(places)
            inside[0] += gathered
            inside[1] += learnt
        elif has_ends(workload, fsdp):
            end = end_of(workload, module)
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


_OF_UNET: Final = re.compile(r".*\.(?:transformer_blocks|resnets)\.\{\}")
"""The units inside of a UNet's blocks: diffusers 0.42.1 models/unets/unet_2d_condition.py
`_no_split_modules` names `BasicTransformerBlock`, `ResnetBlock2D`, and blocks around them."""


def _unit_path(model: Architecture, path: str) -> str:
    """The path of the unit that a module is in; empty: the root."""
    if model.unet:
        found = _OF_UNET.match(path)
        return found[0] if found else ""
    before, repeats, _ = path.partition("{}")
    return before + repeats if repeats else ""


def unit_sizes(workload: Workload, fsdp: Fsdp, states: States) -> tuple[tuple[float, int], ...]:
    """Bytes of each unit of version 1 in its parameters' own dtypes, and how many there are."""
    size = _sizes(workload, replace(states, autocast=False))
    found: dict[tuple[str, int], float] = {}
    for module in workload.architecture.modules:
        gathered, _ = size(module)
        prefix, repeats, _ = module.path.partition("{}")
        inside = bool(repeats) and fsdp.wrap != "none"
        units = {(prefix, place[0]) for place in module.places()} if inside else {("", 0)}
        for unit in units:
            found[unit] = found.get(unit, 0.0) + gathered / len(units)
    return tuple(Counter(found.values()).items())


def _sizes(workload: Workload, states: States) -> Callable[[Module], tuple[float, float]]:
    """A function that counts a module's gathered bytes and trained elements, over all copies."""
    carried, taught = frozenset(workload.adapted), frozenset(workload.trained)
    wanting = taught.union(workload.idle)
    mixed = BYTES[workload.precision.compute] if states.autocast else 0

    def size(module: Module) -> tuple[float, float]:
        base, learnt = module.parameters, module.parameters if module in taught else 0
        adapters = adapter_elements(workload, module) if module in carried else 0
        width = mixed or BYTES[states.trainable if module in wanting else states.weights]
        packed = workload.quantization.format in FOUR_BIT and quantizes(workload, module)
        return (
            base * (PACKED if packed else width) + adapters * (mixed or BYTES[states.trainable]),
            learnt + adapters,
        )

    return size


FORWARDS: Final = (
    (At.TOWER, At.VISION_FORWARD),
    (At.LOSS_FORWARD, At.REFERENCE_LOSS),
    (At.EVALUATION, At.EVALUATION),
)
"""When what a forward pass ends with is whole: a tower's comes before the layers are gathered."""


class Whole(NamedTuple):
    """Sizes of gathered units in a pass that keeps nothing."""

    layers: Sizes = {}
    end: Sizes = {}
    """Sizes when the layers are done."""
    gathering: Sizes = {}
    """Sizes while a layer is copied out of the buffer that it was gathered into."""
    begins: Sizes = {}
    """Sizes while the first layer is copied out of its buffer, if an embedding came before it."""


class ReductionMoment(NamedTuple):
    """A moment at which gradients of a unit are reduced, or a middle layer is differentiated."""

    left: float
    """The share of the layers that the pass has not reached."""
    held: Sizes
    inside: bool
    """Whether a layer is being differentiated."""


class Run(NamedTuple):
    """The values from which the sizes at each moment are computed."""

    units: Units
    fsdp: Fsdp
    width: int
    """Bytes per element of an unsharded gradient."""
    shard: float
    """Bytes per trained element of a rank's reduced gradients during the pass. Version 1 keeps them
    to the end of the pass even if they are copied to the host (torch 2.13 `_runtime_utils.py`,
    `_offload_grad`; `_flat_param.py`, `prepare_gradient_for_optim`)."""
    kept: float
    """Bytes per trained element of a rank's reduced gradients after the pass."""
    passing: float
    """Bytes of one such element as it is summed, and as the optimizer then takes it."""
    waits: bool
    """Whether gradients of earlier micro batches wait unreduced."""
    adds: bool
    """Whether some micro batch adds to them and is not reduced either."""
    shares: bool
    """Whether embedding and output projection are one weight."""
    tied: float
    """Bytes of the gradient of this tied weight, if it is trained."""
    head: float
    """Bytes of the gradient of a separate output projection, if it is trained."""
    layers: int
    """The number of layers of the language model or the denoiser."""
    tiled: bool
    """Whether the loss is computed in tiles, outside of the output projection."""
    adapted: bool
    """Whether adapters are separate units."""
    by: Head
    """What gathers the output projection for the loss (`head_of`)."""

    @property
    def trains_head(self) -> bool:
        """Whether the output projection gets a gradient."""
        return self.head + self.tied > 0

    def gradient(self, unit: Unit) -> float:
        """Bytes of a unit's unsharded gradient."""
        return self.width * unit.trained

    def reduced(self, *units: Unit) -> float:
        """Bytes of a rank's reduced gradients of everything except some units."""
        return self.shard * max(self.rest(*units), 0.0)

    def rest(self, *units: Unit) -> float:
        """Trained elements of everything except some units."""
        return self.units.every.trained - sum(unit.trained for unit in units)

    def waiting(self, *units: Unit) -> float:
        """Bytes of unsharded gradients of units from earlier micro batches."""
        return sum(map(self.gradient, units)) if self.waits else 0.0

    def waiting_besides(self, *units: Unit) -> float:
        """Bytes of unsharded gradients from earlier micro batches of everything except units."""
        return self.width * max(self.rest(*units), 0.0) if self.waits else 0.0


def gradient_width(workload: Workload, states: States) -> int:
    """Bytes per element of the gradients that ranks exchange.

    NeMo AutoModel sums them in fp32 (nemo-automodel 0.5.0 to 0.7.0 components/distributed/
    config.py `FSDP2Config`: reduce_dtype); accelerate sums them in the compute dtype.
    """
    if states.autocast and workload.version(NEMO) is None:
        return BYTES[workload.precision.compute]
    return BYTES["fp32" if states.autocast else states.trainable]


def run_of(workload: Workload, plan: Sharding) -> Run:
    """The units and widths of a plan under FSDP."""
    mixed = plan.states.autocast
    units = units_of(workload, plan.fsdp, plan.states)
    if plan.fsdp.version == 1 and plan.fsdp.sharding == "none":
        units = _where_they_lie(units, trained=mixed)
    width = gradient_width(workload, plan.states) if mixed else plan.parameter
    by = head_of(workload, plan.fsdp)
    if by != "unit":
        gathered = plan.parameter / width if units.tail.trained else 1.0
        units = units._replace(tail=units.tail.times(gathered * (by == "loss")))
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
        adds=plan.adds_unreduced,
        shares=workload.architecture.tied,
        tied=float(width * plan.counts.embedding if plan.counts.tied else 0),
        head=float(0 if plan.counts.tied else width * plan.counts.head),
        layers=main_layers(workload),
        tiled=workload.loss == "chunked",
        adapted=workload.adapter.kind != "none",
        by=by,
    )


def _sums_replicas(fsdp: Fsdp) -> bool:
    """Whether each unit keeps its sum over replicas until the end of the pass.

    torch 2.13 `_fsdp_param_group.py`, `_all_reduce_state`: freed by `finalize_backward`.
    """
    return fsdp.version == 2 and fsdp.sharding == "hybrid"


def _where_they_lie(units: Units, *, trained: bool) -> Units:
    """The units of unsharded parameters, which version 1 only copies to change their dtype.

    torch 2.13 `_flat_param.py`, `needs_unshard` and `_use_low_precision_shard`. `trained`: whether
    trained parameters are copied; nothing is copied if the root unit has no trained parameter.
    """
    whole = trained and units.root.trained > 0
    return Units(*(Unit(whole * unit.size, unit.trained) for unit in units))


def _comes_as_it_is(workload: Workload, plan: Sharding) -> bool:
    """Whether version 1 copies shards from the host in the dtype that is gathered.

    Its parameters then refer to this copy while their unit is gathered; shards that are cast on the
    way are freed (torch 2.13 `_flat_param.py`, `flat_param_to` and `_use_low_precision_shard`).
    """
    mixed, adapted = plan.states.autocast, workload.adapter.kind != "none"
    same = plan.states.weights == workload.precision.compute if mixed else True
    return plan.fsdp.use_orig_params and same and (adapted or not mixed)


def _with_shards(units: Units, shards: int) -> Units:
    """The gathered units, each with the shard that it was gathered from."""
    return Units(*(Unit(unit.size * (1 + 1 / shards), unit.trained) for unit in units))


def in_step(workload: Workload, plan: Sharding, run: Run) -> Sizes:
    """Gradients, temporaries and units that are still gathered while the optimizer steps.

    A frozen unit of version 1 whose input needs no gradient is freed by the next forward pass
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
