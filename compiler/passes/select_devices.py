"""select_devices: which accelerators are used, and how much of them the run may take."""

from dataclasses import dataclass

from tunec.compiler.facts import Facts
from tunec.compiler.ir.plan import Draft
from tunec.compiler.passes.contract import Outcome, Scribe, device, spec
from tunec.schemas.hardware.profile import Accelerators, Device, Node
from tunec.schemas.units import format_bytes


@dataclass(frozen=True, slots=True)
class Place:
    """One accelerator in a node: its number in PCI order, and its name if known."""

    index: int
    device: Device
    uuid: str | None
    memory: int


@dataclass(frozen=True, slots=True)
class Selection:
    """The devices that a run uses: equal numbers on equal nodes."""

    nodes: int
    places: tuple[Place, ...]
    """The devices used on each node."""
    node: Node
    """A node as used; where groups of nodes differ, the one with the least host memory."""
    whole: bool
    """Every device of each node is used, so nothing has to be hidden."""

    @property
    def weakest(self) -> Place:
        """The device that bounds what all of them can do."""
        return min(self.places, key=lambda place: _strength(place.device))

    @property
    def memory(self) -> int:
        """Bytes of the smallest device."""
        return min(place.memory for place in self.places)


def _strength(device: Device) -> tuple[tuple[int, int], float, int]:
    fastest = max(rate for dtype, rate in device.rates.items() if dtype not in ("fp8", "int8"))
    return (device.compute_capability or (0, 0), fastest, device.memory)


def _places(node: Node, facts: Facts) -> tuple[Place, ...]:
    found: list[Place] = []
    for group in node.accelerators:
        found += _group_places(group, facts.devices[group.device], len(found))
    return tuple(found)


def _group_places(group: Accelerators, device: Device, first: int) -> list[Place]:
    memory = group.memory or device.memory
    uuids = group.uuids or (None,) * group.count
    return [Place(first + at, device, uuids[at], memory) for at in range(group.count)]


def select(facts: Facts) -> Selection:
    """Take the devices that the spec asks for: of the best model only, or all of them."""
    every = [(node, _places(node, facts)) for node in facts.cluster.nodes]
    best = max((place.device for _, places in every for place in places), key=_strength)
    if facts.spec.devices.use == "best":
        every = [(n, tuple(p for p in places if p.device.name == best.name)) for n, places in every]
        every = [(node, places) for node, places in every if places]
    width = min(len(places) for _, places in every)
    nodes = sum(node.count for node, _ in every)
    node, places = min(every, key=lambda pair: pair[0].host.memory)
    chosen = _weakest_first(every)[:width] if len(every) > 1 else places
    nodes, width = _limit(nodes, width, facts.spec.devices.count)
    whole = all(len(_places(n, facts)) == width for n, _ in every)
    return Selection(nodes, chosen[:width], node, whole)


def _weakest_first(every: list[tuple[Node, tuple[Place, ...]]]) -> tuple[Place, ...]:
    return min((places for _, places in every), key=lambda p: min(_strength(x.device) for x in p))


def _limit(nodes: int, width: int, count: int | None) -> tuple[int, int]:
    """Use at most `count` devices: whole nodes where they suffice, else part of one node."""
    if count is None or count >= nodes * width:
        return nodes, width
    return (count // width, width) if count >= width else (1, count)


def select_devices(facts: Facts, _: Draft) -> Outcome:
    """Choose devices from the cluster and bound the memory that the run may take."""
    scribe = Scribe(facts)
    chosen = select(facts)
    weakest = chosen.weakest.device
    scribe.say(
        "devices.model",
        weakest.name,
        _why_these(facts, chosen),
        spec("hardware"),
        spec("devices"),
        device(weakest.name, "title"),
    )
    scribe.say("devices.nodes", chosen.nodes, "nodes with such devices", spec("hardware"))
    scribe.say("devices.per_node", len(chosen.places), "such devices on a node", spec("hardware"))
    _name_devices(scribe, chosen)
    capability = weakest.compute_capability
    scribe.say(
        "devices.capability",
        f"{capability[0]}.{capability[1]}" if capability else None,
        "the weakest device bounds them all" if capability else f"{weakest.vendor} has none",
        device(weakest.name, "compute_capability"),
    )
    memory = scribe.say(
        "devices.memory",
        chosen.memory,
        "total of the smallest device as its driver reports it",
        device(weakest.name, "memory"),
    )
    _budgets(scribe, memory, chosen.node.host.memory)
    return scribe.outcome()


def _why_these(facts: Facts, chosen: Selection) -> str:
    title = chosen.weakest.device.title
    if not facts.cluster.is_mixed:
        return f"{title}, the only model in {facts.cluster.name}"
    if facts.spec.devices.use == "best":
        return f"{title}, the strongest model in {facts.cluster.name}; weaker ones are left out"
    return f"{title}, the weakest of all devices, which the spec asks to use together"


def _name_devices(scribe: Scribe, chosen: Selection) -> None:
    uuids = tuple(place.uuid for place in chosen.places if place.uuid)
    if chosen.whole:
        names, why = (), "every device of the node is used"
    elif len(uuids) == len(chosen.places):
        names, why = uuids, "by UUID, which no order of devices can change"
    else:
        names = tuple(str(place.index) for place in chosen.places)
        why = "by number in PCI order; CUDA's own order is fastest first unless told otherwise"
    scribe.say("devices.visible", names, why, spec("hardware"))


def _budgets(scribe: Scribe, memory: int, host: int) -> None:
    budget = scribe.facts.spec.budget
    scribe.say("devices.budget", *_bounded(scribe, budget.gpu_memory, memory, "gpu_memory"))
    scribe.say("devices.host_budget", *_bounded(scribe, budget.host_memory, host, "host_memory"))


def _bounded(scribe: Scribe, wish: float | None, total: int, name: str) -> tuple[int, str]:
    if wish is None:
        return total, f"all of it: no budget.{name} is given"
    asked = round(wish * total) if isinstance(wish, float) and wish <= 1 else int(wish)
    if asked > total:
        scribe.error(
            "E0501",
            f"the budget of {format_bytes(asked)} is more than the {format_bytes(total)} there is",
            f"budget.{name}",
            help=f"give at most {format_bytes(total)}, or a share such as 95%",
        )
    return min(asked, total), f"budget.{name} says so"
