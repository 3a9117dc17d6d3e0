"""The devices of a cluster that a run uses, and their common properties."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from tunec.schemas.caches import BoundedCache
from tunec.schemas.hardware.profile import Accelerators, Cluster, Device, Node
from tunec.schemas.spec import DeviceChoice


class Place(Struct, frozen=True):
    """One accelerator in a node: its number in PCI order, and its name if known."""

    index: int
    device: Device
    uuid: str | None
    memory: int


class Selection(Struct, frozen=True):
    """The devices that a run uses: equal numbers on equal nodes."""

    nodes: int
    places: tuple[Place, ...]
    """The devices used on each node."""
    node: Node
    """A node as used; if groups of nodes differ, the one with the least host memory."""
    whole: bool
    """Whether every device of each node is used, so that none has to be hidden."""
    devices: tuple[Device, ...]
    """The distinct device models, in the order of the places."""
    weakest: Place
    """The device that limits all of them."""
    memory: int
    """Bytes of the smallest device."""

    @property
    def shares_host_memory(self) -> bool:
        """Whether the devices' memory is the RAM of their host."""
        return any(each.shares_host_memory for each in self.devices)

    @property
    def count(self) -> int:
        """The number of devices on all nodes together."""
        return self.nodes * len(self.places)


def _selection(nodes: int, places: tuple[Place, ...], node: Node, *, whole: bool) -> Selection:
    firsts = {place.device.name: place for place in reversed(places)}
    weakest = min(reversed(firsts.values()), key=lambda place: _strength(place.device))
    found = tuple({place.device.name: place.device for place in places}.values())
    devices = _DEVICES.of(found, (), lambda: found)
    memory = min(place.memory for place in places)
    return Selection(nodes, places, node, whole, devices, weakest, memory)


_DEVICES: Final = BoundedCache[tuple[Device, ...]](
    "compiler.analyses.selection.devices", 1024, lasting=True
)
"""One tuple object for equal devices, so that results that depend only on them are computed
once."""


def _strength(device: Device) -> tuple[tuple[int, int], float, int]:
    fastest = max(rate for dtype, rate in device.rates.items() if dtype not in ("fp8", "int8"))
    return (device.compute_capability or (0, 0), fastest, device.memory)


def _places(node: Node, devices: Mapping[str, Device]) -> tuple[Place, ...]:
    found: list[Place] = []
    for group in node.accelerators:
        found += _group_places(group, devices[group.device], len(found))
    return tuple(found)


def _group_places(group: Accelerators, device: Device, first: int) -> list[Place]:
    memory = group.memory or device.memory
    uuids = group.uuids or (None,) * group.count
    return [Place(first + at, device, uuids[at], memory) for at in range(group.count)]


def select(cluster: Cluster, devices: Mapping[str, Device], choice: DeviceChoice) -> Selection:
    """Select the devices that a spec requests: of the best model only, or all of them.

    `devices` holds the catalogue device of each name in the cluster.
    """
    every = [(node, _places(node, devices)) for node in cluster.nodes]
    sizes = [len(places) for _, places in every]
    models = {place.device.name: place.device for _, places in every for place in places}
    best = max(models.values(), key=_strength)
    if choice.use == "best":
        every = [(n, tuple(p for p in places if p.device.name == best.name)) for n, places in every]
        every = [(node, places) for node, places in every if places]
    width = min(len(places) for _, places in every)
    nodes = sum(node.count for node, _ in every)
    node, places = min(every, key=lambda pair: pair[0].host.memory)
    chosen = _weakest_first(every)[:width] if len(every) > 1 else places
    nodes, width = _limit(nodes, width, choice.count)
    whole = all(size == width for size in sizes)
    return _selection(nodes, chosen[:width], node, whole=whole)


def _weakest_first(every: list[tuple[Node, tuple[Place, ...]]]) -> tuple[Place, ...]:
    return min((places for _, places in every), key=lambda p: min(_strength(x.device) for x in p))


def _limit(nodes: int, width: int, count: int | None) -> tuple[int, int]:
    """Use at most `count` devices: whole nodes if they suffice, else part of one node."""
    if count is None or count >= nodes * width:
        return nodes, width
    return (count // width, width) if count >= width else (1, count)
