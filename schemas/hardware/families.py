"""Machines that are rented in several sizes: a family holds what all have, a row what each has."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from tunec.schemas.caches import cached
from tunec.schemas.entries import read_file
from tunec.schemas.hardware.profile import MOST_DEVICES, Cluster, Link
from tunec.schemas.shape import Shape
from tunec.schemas.units import Bytes, Rate

FILE: Final = Path(__file__).with_name("families.yaml")


class Size(Shape):
    """One machine of a family."""

    instance: str | None = None
    """The provider's name of it, if it is not the cluster's."""
    devices: int = Field(default=1, ge=1, le=MOST_DEVICES)
    memory: Bytes
    """Host RAM."""
    cores: int = Field(ge=1)
    """Physical CPU cores."""
    network: Rate | None = None
    """Bytes per second out of the machine, one direction; absent: none is published."""


class Family(Shape):
    """What the machines of a family have in common."""

    title: str
    """The provider, which each machine's title begins with."""
    labels: dict[str, str]
    device: str
    link: Link | None = None
    """The link between the devices of a machine that has several."""
    bandwidth_per_core: Rate
    """Bytes per second of host memory for each core: the whole host's, by its cores."""
    network: Literal["ethernet", "efa", "roce"] = "ethernet"
    sources: dict[str, str]
    """The sources of the numbers, as in a cluster's file."""
    notes: tuple[str, ...] = ()
    machines: dict[str, Size]


class Families(Shape):
    """The file of families."""

    families: tuple[Family, ...]


def sized_names() -> tuple[str, ...]:
    """List the machines of all families."""
    return tuple(_sizes())


def sized(name: str) -> Cluster:
    """Return a machine of a family as a cluster of one node."""
    family, size = _sizes()[name]
    link = family.link if size.devices > 1 else None
    absent = {"nodes[0].link": link, "network": size.network}
    host = {
        "memory": size.memory,
        "cores": size.cores,
        "memory_bandwidth": family.bandwidth_per_core * size.cores,
    }
    group = {"device": family.device, "count": size.devices}
    facts = {
        "name": name,
        "title": f"{family.title} {size.instance or name}",
        "nodes": ({"accelerators": (group,), "link": link, "host": host},),
        "network": {"kind": family.network, "bandwidth": size.network} if size.network else None,
        "labels": family.labels,
        "sources": {key: text for key, text in family.sources.items() if absent.get(key, True)},
        "notes": family.notes,
    }
    return Cluster.model_validate(facts)


@cached()
def _sizes() -> Mapping[str, tuple[Family, Size]]:
    found = read_file(FILE, Families).families
    return {name: (each, size) for each in found for name, size in each.machines.items()}
