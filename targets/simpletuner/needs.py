"""Slots that SimpleTuner fixes, or by which it does more, once the devices are known."""

from collections.abc import Mapping
from itertools import chain
from typing import Any, Final

from packaging.version import Version

from tunec.compiler.ir.plan import Draft
from tunec.compiler.ir.slots import Devices
from tunec.schemas.spec import Spec
from tunec.targets.simpletuner.checks import BY_DEEPSPEED, NEVER, WHOLE

_FIRST_WITH_BF16: Final = Version("8.0")
"""Compute capability with bf16 units (CUDA C++ Programming Guide, "Arithmetic Instructions")."""


def needs(spec: Spec, draft: Draft) -> Mapping[str, Any]:
    """Slots that the spec leaves open and SimpleTuner fixes, once the devices are known.

    Parameters are trained in the compute dtype, so fp16 is not possible, and DeepSpeed trains no
    adapters.
    """
    devices = draft.groups.get("devices")
    if devices is None:
        return {}
    pins = {**_precision(spec, devices), **_engine(spec, devices), **_states(spec, draft)}
    shards = _FSDP if spec.engine == "fsdp" else {}
    return {**pins, **shards, **_saving(spec, draft)}


def _precision(spec: Spec, devices: Devices) -> Mapping[str, Any]:
    capability = devices.capability
    has_bf16 = capability is None or Version(capability) >= _FIRST_WITH_BF16
    return {} if has_bf16 or spec.precision.compute else {"precision.compute": "fp32"}


def _engine(spec: Spec, devices: Devices) -> Mapping[str, Any]:
    if (
        _may_be_deepspeeds(spec)
        or spec.engine
        or any(pin.startswith("parallel.") for pin in spec.pin)
    ):
        return {}
    return {"parallel.engine": "ddp" if _can_share(spec.batch.global_, devices) else "none"}


def _may_be_deepspeeds(spec: Spec) -> bool:
    """Whether SimpleTuner allows DeepSpeed for this spec."""
    return spec.method.full is not None and spec.train.optimizer.name in BY_DEEPSPEED


def prefers(spec: Spec, draft: Draft, version: Version) -> Mapping[str, Any]:
    """FSDP for full training on several devices: its checkpoints are written, others hang."""
    devices = draft.groups.get("devices")
    if (
        devices is None
        or not _may_shard(spec, version)
        or not _can_share(spec.batch.global_, devices)
    ):
        return {}
    return {"parallel.engine": "fsdp", **_FSDP}


_FSDP: Final = {
    "fsdp.version": 2,
    "fsdp.offload_params": False,
    "fsdp.efficient_loading": False,
}
"""Each rank loads the weights by itself, whatever the flag is (helpers/models/common.py)."""


def _may_shard(spec: Spec, version: Version) -> bool:
    """Whether FSDP is possible, and nothing of the spec speaks of another engine."""
    asked = spec.engine or any(pin.startswith(("parallel.", "zero.")) for pin in spec.pin)
    trains = spec.method.full is not None and spec.train.optimizer.name == "adamw"
    return trains and not asked and version >= WHOLE


def _can_share(batch: int | None, devices: Devices) -> bool:
    """Whether the batch divides over some number of devices above one, filled node by node."""
    each, nodes = devices.per_node, devices.nodes
    counts = chain(range(2, each + 1), range(2 * each, nodes * each + 1, each))
    return any(batch is None or batch % count == 0 for count in counts)


def _saving(spec: Spec, draft: Draft) -> Mapping[str, Any]:
    """No checkpoint on the way where one would make the run hang."""
    parallel = draft.groups.get("parallel")
    several = parallel is not None and parallel.world > 1 and parallel.engine != "fsdp"
    if not several or spec.method.full is None or spec.train.checkpoints is not None:
        return {}
    return {"schedule.save_steps": NEVER}


def _states(spec: Spec, draft: Draft) -> Mapping[str, Any]:
    """Set the trained states to fp16 if the spec requests it, so that only `check` refuses it."""
    precision = draft.groups.get("precision")
    if precision is None or precision.compute != "fp16" or _may_be_deepspeeds(spec):
        return {}
    return dict.fromkeys(("states.trainable", "states.gradients", "states.optimizer"), "fp16")
