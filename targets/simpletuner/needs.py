"""What keeps a plan from SimpleTuner's refusals (checks.py) where the spec leaves the choice."""

from collections.abc import Mapping
from itertools import chain
from typing import Any, Final

from packaging.version import Version

from tunec.compiler.ir.plan import Draft
from tunec.compiler.ir.slots import Devices
from tunec.schemas.spec import Spec
from tunec.targets.simpletuner.checks import BY_DEEPSPEED

_FIRST_WITH_BF16: Final = Version("8.0")
"""Compute capability with bf16 units (CUDA C++ Programming Guide, "Arithmetic Instructions")."""


def needs(spec: Spec, draft: Draft) -> Mapping[str, Any]:
    """Slots that the spec leaves open and SimpleTuner does not, once the devices are known.

    Parameters are trained in the compute dtype, so fp16 is nothing for it, and adapters are
    trained by torch alone.
    """
    devices = draft.groups.get("devices")
    if devices is None:
        return {}
    return {**_precision(spec, devices), **_engine(spec, devices), **_states(spec, draft)}


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
    """Whether SimpleTuner lets DeepSpeed train this."""
    return spec.method.full is not None and spec.train.optimizer.name in BY_DEEPSPEED


def _can_share(batch: int | None, devices: Devices) -> bool:
    """Whether some number of devices over one has whole samples, nodes filled one by one."""
    each, nodes = devices.per_node, devices.nodes
    counts = chain(range(2, each + 1), range(2 * each, nodes * each + 1, each))
    return any(batch is None or batch % count == 0 for count in counts)


def _states(spec: Spec, draft: Draft) -> Mapping[str, Any]:
    """What is trained is fp16 where the spec asks for it: the one refusal is told, of checks.py."""
    precision = draft.groups.get("precision")
    if precision is None or precision.compute != "fp16" or _may_be_deepspeeds(spec):
        return {}
    return dict.fromkeys(("states.trainable", "states.gradients", "states.optimizer"), "fp16")
