"""What trainers, launchers and clusters leave to each other's files, and what to none."""

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
"""Refusals of every trainer: files for Slurm, Kubernetes and SkyPilot say these slots."""

FITTED: Final[Mapping[str, Cannot]] = {
    f"devices.{name}": Cannot("the plan was fitted to it, and no program reads it")
    for name in ("model", "capability", "memory", "budget", "reserve", "host_budget")
}
"""What a plan knows of its devices: their names and sizes, and how much of them it may take."""


def by_trainer() -> Cannot:
    """What launchers and clusters do not get."""
    return Cannot("the trainer's own files say it", elsewhere=in_every_plan)


def by_launcher() -> Cannot:
    """What trainers and engines do not get."""
    return Cannot("the launch command says it", elsewhere=in_every_plan)
