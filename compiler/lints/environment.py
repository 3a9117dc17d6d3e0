"""What is known of a run besides its files: hardware, processes, versions, model."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field
from packaging.version import Version

from tunec.compiler.releases import Releases

if TYPE_CHECKING:
    from tunec.compiler.facts import ResolvedModel
    from tunec.schemas.hardware.profile import Cluster, Device, Host


class Release(Struct, frozen=True):
    """The release of a package that is taken to run."""

    package: str
    version: Version
    is_named: bool
    """Whether somebody named it; otherwise it is the newest that goes with what was named."""
    after: Version | None = None
    """The newest known release that lacks some key of the files, where nobody named one."""

    def is_in(self, specifiers: Releases) -> bool | None:
        """Whether it is within a range; None where nobody named it and no key tells."""
        if self.is_named:
            return specifiers.contains(self.version)
        sign, bound = specifiers.text[:2], specifiers.text.lstrip("<>=!~")
        if self.after is None or not bound or "," in bound or self.after < Version(bound):
            return None
        return {">": True, "<": False}.get(sign[0])

    def __str__(self) -> str:
        return f"{self.package} {self.version}"


class Environment(Struct, frozen=True):
    """What the command line says of a run; each part may be unknown."""

    cluster: "Cluster | None" = None
    devices: "Mapping[str, Device]" = field(default_factory=dict)
    """Catalogue device of each name in the cluster."""
    world: int | None = None
    """Processes, as --world-size says."""
    model: "ResolvedModel | None" = None
    """The model that --model names, if the catalogue has it."""
    model_name: str | None = None
    """The name that --model gives, whether the catalogue has it or not."""
    software: Mapping[str, str] = field(default_factory=dict)
    """Named versions by distribution: --software, --from NAME@VERSION, the cluster's own."""
    readers: tuple[str, ...] = ()
    """Targets that --from names, in order."""

    @property
    def hosts(self) -> "tuple[Host, ...]":
        """The computer of each group of nodes; empty where the hardware is unknown."""
        return tuple(node.host for node in self.cluster.nodes) if self.cluster else ()

    @property
    def is_host_assumed(self) -> bool:
        """Whether only devices were named, and what stands around them is the usual of their kind.

        schemas/hardware/catalogue.py `_assumed`: `v100-sxm2-32g-x2`.
        """
        told = self.cluster.sources if self.cluster is not None else {}
        return told.get("nodes[0].host", "").startswith("assumed")

    def has_memory(self, count: int | str) -> bool:
        """Whether every node has so many bytes of RAM, where the hardware is known.

        Clusters of many sizes answer alike, which those who read the size itself do not.
        """
        return all(host.memory >= int(count) for host in self.hosts)

    def has_cores(self, count: int | str) -> bool:
        """Whether every node has so many cores, where the hardware is known."""
        return all(host.cores >= int(count) for host in self.hosts)

    @property
    def weakest(self) -> "Device | None":
        """The NVIDIA device of the lowest compute capability, or else any device; None: unknown."""
        known = [each for each in self.devices.values() if each.compute_capability]
        lowest = min(known, key=lambda each: each.compute_capability or (0, 0), default=None)
        return lowest or next(iter(self.devices.values()), None)
