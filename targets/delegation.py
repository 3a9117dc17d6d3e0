"""Slots that trainers, launchers and clusters leave to each other's files, or to no file."""

from collections.abc import Collection, Mapping
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


IDLE_DEVICES: Final[Mapping[str, Cannot]] = dict.fromkeys(
    ("devices.nodes", "devices.per_node"),
    Cannot("the plan leaves devices idle, and starts processes on the others"),
)
"""Refusals of programs that start as many processes as the plan has, and request no devices."""


def by_manager(name: str, own: Collection[str], *others: str) -> Mapping[str, Cannot]:
    """The refusals of a cluster's manager whose files express the slots `own`.

    `others`: slots of a job that only other managers have.
    """
    return {
        **{slot: by_trainer() for slot in SLOTS if slot not in own},
        **IDLE_DEVICES,
        "devices.host_budget": Cannot(
            "what the run may take; job.host_memory is what is requested"
        ),
        **dict.fromkeys(others, Cannot(f"another manager's word: {name} has none")),
        "precision.deprecated_fp16": Cannot("only DeepSpeed asks for it"),
    }
