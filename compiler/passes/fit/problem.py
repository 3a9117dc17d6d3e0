"""The search's problem, and one shape of a layout."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, get_args

from msgspec import Struct
from packaging.version import Version

from tunec.compiler.analyses.memory.modules import experts_apart, is_stack
from tunec.compiler.analyses.memory.sharding import gathers_twice
from tunec.compiler.analyses.memory.workload import Layout, Workload
from tunec.compiler.analyses.time.machine import Machine
from tunec.compiler.ir.slots import SLOTS, ActivationCheckpointing, Batch, Parallel, States, Zero
from tunec.compiler.passes.defaults import GRADIENTS
from tunec.compiler.passes.fit.fsdp import NOT, fsdp_of
from tunec.compiler.passes.fit.fsdp import Kind as FsdpKind
from tunec.compiler.passes.fit.states import states_of, sums_in_fp32
from tunec.compiler.passes.fit.zero import zero_of
from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace
from tunec.schemas.terms import Checkpointing, Engine, Offload, Vendor


class Problem(Struct, frozen=True):
    """Everything that the search depends on; equal problems have equal answers."""

    workload: Workload
    machine: Machine
    budget: int
    """Bytes on each device that the run may use."""
    reserve: int
    """Bytes of the budget that a layout should leave free; using them has a price
    (`yielding`)."""
    host_budget: int | None
    """Bytes of each node's RAM that the run may use; None: unknown."""
    nvme_path: str | None
    nodes: int
    per_node: int
    global_batch: int | None
    """Samples in one optimizer step, if the spec or a pin gives the number."""
    trainable: int
    engine: Engine | None
    """The engine that the spec requests; a pin overrules it."""
    pins: tuple[tuple[str, Any], ...]
    """Pinned slots of the groups that the search decides."""
    group: int = 1
    """Samples that an optimizer step must hold together: the answers to one prompt."""
    vendor: Vendor = "nvidia"
    """The devices' vendor, which names entries of the memory account."""
    takes_fsdp: bool = False
    """Whether the search considers FSDP without a request."""
    loses_schedule: bool = False
    """Whether the schedule of the learning rate fails under DeepSpeed."""

    @property
    def details(self) -> tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]:
        """Pins that do not affect the shape but are part of the layout, by group."""
        return _details(self.pins, self.engine) if self.pins else ()

    @property
    def pinned(self) -> Mapping[str, Any]:
        """The slots that the search may not change: the pins and the spec's engine."""
        return _pinned(self.pins, self.engine)


_Pins = tuple[tuple[str, Any], ...]


@cached(256)
def _pinned(pins: _Pins, engine: Engine | None) -> Mapping[str, Any]:
    asked = {"parallel.engine": engine} if engine else {}
    return MappingProxyType({**asked, **dict(pins)})


@cached(256)
def _details(pins: _Pins, engine: Engine | None) -> tuple[tuple[str, _Pins], ...]:
    return details_of(_pinned(pins, engine))


class Shape(Struct, frozen=True, order=True):
    """A layout without its batch."""

    engine: Engine
    stage: int
    offload_optimizer: Offload
    offload_param: Offload
    checkpointing: Checkpointing
    nodes: int
    per_node: int
    fsdp: FsdpKind = NOT
    tensor: int = 1
    """Ranks that share each layer; like `sequence`, only if a pin requests it."""
    sequence: int = 1
    """Ranks that share each sequence."""

    @property
    def devices(self) -> int:
        """The number of devices used, one rank each."""
        return self.nodes * self.per_node

    @property
    def width(self) -> int:
        """Data parallel width: the number of groups of ranks with their own samples."""
        return max(self.devices // (self.tensor * self.sequence), 1)

    @property
    def offloads(self) -> bool:
        """Whether parts of its state are on the host, or on a drive."""
        return self.fsdp[2] or {self.offload_optimizer, self.offload_param} != {"none"}

    def says(self, slot: str) -> Any:
        """The value that this shape gives a slot of the search, or None for other slots."""
        return _SHAPE_SLOTS[slot](self) if slot in _SHAPE_SLOTS else None

    def __str__(self) -> str:
        version, sharding, offloads = self.fsdp
        name = {
            "none": "one process",
            "ddp": "DDP",
            "deepspeed": f"ZeRO {self.stage}",
            "fsdp": f"FSDP {version} {sharding}",
        }[self.engine]
        groups = (("tensor", self.tensor), ("sequence", self.sequence))
        shared = [f"{what} parallel {ways}" for what, ways in groups if ways > 1]
        moved = ["shards on cpu"] if offloads else []
        moved += [
            f"{what} on {where}"
            for what, where in (
                ("optimizer", self.offload_optimizer),
                ("parameters", self.offload_param),
            )
            if where != "none"
        ]
        kept = ["checkpointing"] if self.checkpointing == "layer" else []
        return ", ".join([name, *shared, *moved, *kept])


_SHAPE_SLOTS: dict[str, Callable[[Shape], Any]] = {
    "parallel.engine": lambda shape: shape.engine,
    "parallel.data": lambda shape: shape.width,
    "parallel.world": lambda shape: shape.devices,
    "parallel.tensor": lambda shape: shape.tensor,
    "parallel.sequence": lambda shape: shape.sequence,
    "zero.stage": lambda shape: shape.stage,
    "zero.offload_optimizer": lambda shape: shape.offload_optimizer,
    "zero.offload_param": lambda shape: shape.offload_param,
    "fsdp.version": lambda shape: shape.fsdp[0],
    "fsdp.sharding": lambda shape: shape.fsdp[1],
    "fsdp.offload_params": lambda shape: shape.fsdp[2],
    "activation_checkpointing.mode": lambda shape: shape.checkpointing,
}
SHAPE_SLOTS = frozenset(_SHAPE_SLOTS)


def layout_of(problem: Problem, shape: Shape, micro: int, accumulation: int) -> Layout:
    """The complete layout of a shape with a batch, with the pins applied."""
    workload, given = problem.workload, (problem.trainable, problem.nvme_path)
    batch = Batch(micro, accumulation, micro * accumulation * shape.width, micro)
    parallel, states, zero, checkpointing = _parts(workload, shape, *given)
    if accumulation > 1 and sums_in_fp32(workload, states, zero):
        states = replace(states, gradients=GRADIENTS.value)
    layout = Layout(
        *(parallel, states, zero, checkpointing),
        batch=batch,
        fsdp=fsdp_of(shape.fsdp, shape.checkpointing, workload),
        nodes=shape.nodes,
    )
    for group, changes in problem.details:
        layout = replace(layout, **{group: replace(getattr(layout, group), **dict(changes))})
    return layout


@cached(4096)
def _parts(
    workload: Workload, shape: Shape, trainable: int, nvme_path: str | None
) -> tuple[Parallel, States, Zero, ActivationCheckpointing]:
    """The groups that depend on a shape, but not on its batch."""
    zero = zero_of(
        shape.stage,
        shape.offload_optimizer,
        shape.offload_param,
        hidden=workload.architecture.hidden,
        trainable=trainable,
        nvme_path=nvme_path,
        optimizer=workload.optimizer.name,
        stacked=not experts_apart(workload) and any(map(is_stack, workload.architecture.modules)),
    )
    return (
        Parallel(shape.engine, shape.devices, shape.width, shape.tensor, shape.sequence),
        states_of(workload, shape.engine, shape.stage, fsdp=shape.fsdp[0]),
        zero,
        _recomputed(workload, shape, zero),
    )


def _recomputed(workload: Workload, shape: Shape, zero: Zero) -> ActivationCheckpointing:
    """Use the reentrant variant, which compares nothing, if frozen weights are gone while it would.

    And if the other one would gather frozen experts twice. While a layer is recomputed, deepspeed
    0.14.5 to 0.19.2 runtime/zero/partitioned_param_coordinator.py `release_sub_module` frees them;
    0.19.3 does not (deepspeedai/DeepSpeed#8148).
    """
    found = _RECOMPUTED[shape.checkpointing]
    if shape.stage != 3 or shape.checkpointing == "none" or workload.adapter.kind == "none":
        return found
    deepspeed = workload.version("deepspeed")
    takes_away = deepspeed is not None and deepspeed < _KEEPS_FROZEN
    asked = takes_away or gathers_twice(workload, zero)
    return replace(found, reentrant=True) if asked else found


_KEEPS_FROZEN: Final = Version("0.19.3")
_RECOMPUTED: Final[Mapping[Checkpointing, ActivationCheckpointing]] = {
    mode: ActivationCheckpointing(mode, False, 1, 0, False) for mode in get_args(Checkpointing)
}


def details_of(pins: Mapping[str, Any]) -> tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]:
    """Pins of the layout that do not affect its shape, by group: dtypes, bucket sizes.

    Where units are not formed by layer, no classes are named.
    """
    if pins.get("fsdp.wrap", "transformer") != "transformer":
        pins = {"fsdp.wrap_classes": (), **pins}
    changes: dict[str, list[tuple[str, Any]]] = {}
    for path, value in sorted(pins.items()):
        slot = SLOTS[path]
        if path == "batch.evaluation" or (path not in SHAPE_SLOTS and slot.group != "batch"):
            changes.setdefault(slot.group, []).append((slot.attribute, value))
    return tuple((group, tuple(fields)) for group, fields in changes.items())
