"""What a cluster is asked for, and no trainer is told."""

from collections.abc import Mapping
from typing import Final

from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.target import Cannot

BY_CLUSTER: Final[Mapping[str, Cannot]] = {
    **{
        slot: Cannot("a cluster is asked for it, and no trainer told")
        for slot in SLOTS
        if slot.startswith("job.")
    },
    "devices.vendor": Cannot("torch finds the devices that are there"),
}
"""Refusals of every trainer: files for Slurm, Kubernetes and SkyPilot say these slots."""
