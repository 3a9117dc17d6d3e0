"""The plan, which holds the winning value of every slot, and the draft that passes fill."""

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, Final, Self

from msgspec import Struct

from tunec.compiler.ir.answers import Generation, Ppo
from tunec.compiler.ir.loop import Job, Runtime, Schedule
from tunec.compiler.ir.slots import (
    GROUPS,
    SLOTS,
    ActivationCheckpointing,
    Adapter,
    AttentionKernel,
    Batch,
    Data,
    Devices,
    Evaluation,
    Fsdp,
    Launch,
    Loss,
    Model,
    Objective,
    Optimizer,
    Parallel,
    Precision,
    Quantization,
    States,
    Zero,
)
from tunec.schemas.caches import table
from tunec.schemas.frozen import replace

_PATHS: Final[Mapping[str, tuple[str, ...]]] = {
    group: tuple(path for path, slot in SLOTS.items() if slot.group == group) for group in GROUPS
}
"""Each group's slots, in the order of its fields."""


def _reader(paths: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that reads all slots of a group at once."""
    names = [SLOTS[path].attribute for path in paths]
    return attrgetter(*names) if len(names) > 1 else lambda group: (getattr(group, names[0]),)


_READ: Final = {group: _reader(paths) for group, paths in _PATHS.items()}


class GroupNotDecided(LookupError):
    """A pass read a group that no earlier pass decides: a bug in the pipeline's order."""


class SlotNotSet(LookupError):
    """A question needs a slot that no file sets."""

    def __init__(self, slot: str) -> None:
        super().__init__(slot)
        self.slot = slot


class Plan(Struct, frozen=True):
    """Every slot's value, by group."""

    model: Model
    devices: Devices
    data: Data
    precision: Precision
    attention: AttentionKernel
    quantization: Quantization
    adapter: Adapter
    objective: Objective
    generation: Generation
    ppo: Ppo
    evaluation: Evaluation
    loss: Loss
    optimizer: Optimizer
    parallel: Parallel
    states: States
    zero: Zero
    fsdp: Fsdp
    activation_checkpointing: ActivationCheckpointing
    batch: Batch
    schedule: Schedule
    runtime: Runtime
    launch: Launch
    job: Job

    def __getitem__(self, slot: str) -> Any:
        """The value of a slot by its path; KeyError for an unknown path."""
        place = SLOTS[slot]
        return getattr(getattr(self, place.group), place.attribute)

    def values(self) -> dict[str, Any]:
        """Every slot's path and value, in the order of the groups."""
        found: dict[str, Any] = {}
        for group in GROUPS:
            found.update(values_of(group, getattr(self, group)))
        return found

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Build a plan from a value for every slot; KeyError names a slot without one."""
        return cls(**{group: build_group(group, values) for group in GROUPS})

    def with_values(self, values: Mapping[str, Any]) -> Self:
        """The plan with other values for some slots; KeyError for an unknown path."""
        changed = {path: to for path, to in values.items() if to != self[path]}
        groups = {SLOTS[path].group for path in changed}
        held = {group: {**values_of(group, getattr(self, group)), **changed} for group in groups}
        return replace(self, **{group: build_group(group, new) for group, new in held.items()})


def training_data(plan: Plan) -> tuple[str, ...]:
    """All training data, in the order in which it is read."""
    return (plan.data.train, *plan.data.more)


def limited_data(plan: Plan) -> tuple[tuple[str, int], ...]:
    """All training data, each with the most samples that are taken of it; 0 is all of it."""
    named = training_data(plan)
    return tuple(zip(named, plan.data.limits or (0,) * len(named), strict=True))


_CONSTANT: Final = frozenset({"constant", "constant_with_warmup"})


def both_are_flat(slot: str, value: Any, plan: Plan) -> bool:
    """Whether a value and the plan's give one learning rate: without warm-up both constants do."""
    is_flat = slot == "schedule.kind" and plan.schedule.warmup_steps == 0
    return is_flat and {value, plan.schedule.kind} <= _CONSTANT


def values_of(group: str, whole: object) -> dict[str, Any]:
    """The slot paths and values of one group, given the group's name and the group itself."""
    return dict(zip(_PATHS[group], _READ[group](whole), strict=True))


def build_group(group: str, values: Mapping[str, Any]) -> Any:
    """Build one group from a mapping of slot paths to values; equal values give the same object."""
    given = [values[path] for path in _PATHS[group]]
    made = GROUPS[group](*given)
    if len(_BUILT) >= _MOST_BUILT:
        _BUILT.clear()
    return _BUILT.setdefault((made, *map(type, given)), made)


_BUILT: Final = table("compiler.ir.plan.groups")
"""Groups by their values and value types, so that results cached by identity are found again."""
_MOST_BUILT: Final = 4096


class Draft(Struct, frozen=True):
    """A plan in the making: the groups decided so far."""

    groups: Mapping[str, Any]

    def with_groups(self, groups: Mapping[str, Any]) -> Self:
        """Return a draft that also holds these groups."""
        return type(self)({**self.groups, **groups})

    def missing(self) -> Iterable[str]:
        """Names of the groups that are not decided yet."""
        return [group for group in GROUPS if group not in self.groups]

    def plan(self) -> Plan:
        """The finished plan; raises TypeError if a group is missing."""
        return Plan(**self.groups)

    def _group(self, name: str) -> Any:
        if name not in self.groups:
            raise GroupNotDecided(name)
        return self.groups[name]

    @property
    def model(self) -> Model:
        """Decided by resolve_model."""
        group: Model = self._group("model")
        return group

    @property
    def devices(self) -> Devices:
        """Decided by select_devices."""
        group: Devices = self._group("devices")
        return group

    @property
    def data(self) -> Data:
        """Decided by resolve_data."""
        group: Data = self._group("data")
        return group

    @property
    def precision(self) -> Precision:
        """Decided by choose_precision."""
        group: Precision = self._group("precision")
        return group

    @property
    def attention(self) -> AttentionKernel:
        """Decided by choose_attention."""
        group: AttentionKernel = self._group("attention")
        return group

    @property
    def quantization(self) -> Quantization:
        """Decided by choose_quantization."""
        group: Quantization = self._group("quantization")
        return group

    @property
    def adapter(self) -> Adapter:
        """Decided by choose_adapter."""
        group: Adapter = self._group("adapter")
        return group

    @property
    def objective(self) -> Objective:
        """Decided by choose_objective."""
        group: Objective = self._group("objective")
        return group

    @property
    def generation(self) -> Generation:
        """Decided by choose_objective."""
        group: Generation = self._group("generation")
        return group

    @property
    def ppo(self) -> Ppo:
        """Decided by choose_objective."""
        group: Ppo = self._group("ppo")
        return group

    @property
    def evaluation(self) -> Evaluation:
        """Decided by choose_evaluation."""
        group: Evaluation = self._group("evaluation")
        return group

    @property
    def loss(self) -> Loss:
        """Decided by choose_loss."""
        group: Loss = self._group("loss")
        return group

    @property
    def optimizer(self) -> Optimizer:
        """Decided by choose_optimizer."""
        group: Optimizer = self._group("optimizer")
        return group

    @property
    def parallel(self) -> Parallel:
        """Decided by fit."""
        group: Parallel = self._group("parallel")
        return group

    @property
    def states(self) -> States:
        """Decided by fit."""
        group: States = self._group("states")
        return group

    @property
    def zero(self) -> Zero:
        """Decided by fit."""
        group: Zero = self._group("zero")
        return group

    @property
    def fsdp(self) -> Fsdp:
        """Decided by fit."""
        group: Fsdp = self._group("fsdp")
        return group

    @property
    def activation_checkpointing(self) -> ActivationCheckpointing:
        """Decided by fit."""
        group: ActivationCheckpointing = self._group("activation_checkpointing")
        return group

    @property
    def batch(self) -> Batch:
        """Decided by fit."""
        group: Batch = self._group("batch")
        return group

    @property
    def schedule(self) -> Schedule:
        """Decided by schedule_training."""
        group: Schedule = self._group("schedule")
        return group

    @property
    def runtime(self) -> Runtime:
        """Decided by set_runtime."""
        group: Runtime = self._group("runtime")
        return group
