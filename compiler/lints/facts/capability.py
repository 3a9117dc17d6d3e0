"""Devices below a compute capability."""

from typing import TYPE_CHECKING

from tunec.compiler.lints.context import LintContext

if TYPE_CHECKING:
    from tunec.schemas.hardware.profile import Device


def below(run: LintContext, major: int, minor: int = 0) -> "Device | None":
    """The weakest NVIDIA device of the run, if its compute capability is lower.

    Where the hardware mixes models and nothing says which of them are used, only if all are lower.
    """
    weakest = run.environment.weakest
    if weakest is None or weakest.compute_capability is None:
        return None
    every = run.environment.devices.values()
    visible = run.value("devices.visible")
    used = [weakest] if visible is not None else every
    asked = (each.compute_capability or (0, 0) for each in used)
    return weakest if all(capability < (major, minor) for capability in asked) else None


def with_capability(device: "Device") -> str:
    """A device with its compute capability: `Tesla V100 (compute capability 7.0)`."""
    major, minor = device.compute_capability or (0, 0)
    return f"{device.title} (compute capability {major}.{minor})"
