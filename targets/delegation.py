"""Slots that trainers, launchers and clusters leave to each other's files, or to no file."""

from collections.abc import Mapping
from typing import Final

from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.target import Cannot, in_every_plan

BY_CLUSTER: Final[Mapping[str, Cannot]] = {
    **{
        slot: Cannot("it is requested from the cluster, and no trainer reads it")
        for slot in SLOTS
        if slot.startswith("job.")
    },
    "devices.vendor": Cannot("torch finds the devices that are there"),
}
"""Refusals of every trainer: files for Slurm, Kubernetes and SkyPilot express these slots."""

FITTED: Final[Mapping[str, Cannot]] = {
    f"devices.{name}": Cannot("the plan was fitted to it, and no program reads it")
    for name in ("model", "capability", "memory", "budget", "reserve", "host_budget")
}
"""Slots for which the plan was fitted to its devices, such as their model, memory and budget; no
program reads them."""


def by_trainer() -> Cannot:
    """The refusal by launchers and clusters of a slot that the trainer's files express."""
    return Cannot("the trainer's own files say it", elsewhere=in_every_plan)


def by_launcher() -> Cannot:
    """The refusal by trainers and engines of a slot that the launch command expresses."""
    return Cannot("the launch command says it", elsewhere=in_every_plan)
