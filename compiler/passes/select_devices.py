"""select_devices: which accelerators are used, and how much of their memory the run may take."""

from tunec.compiler.analyses.selection import Selection
from tunec.compiler.facts import Facts
from tunec.compiler.ir.plan import Draft
from tunec.compiler.passes.contract import Outcome, Scribe, device, spec
from tunec.compiler.passes.defaults import RESERVE
from tunec.schemas.units import MIB, format_bytes


def select_devices(facts: Facts, _: Draft) -> Outcome:
    """Choose devices from the cluster and limit the memory that the run may take."""
    scribe = Scribe(facts)
    chosen = facts.selection
    weakest = chosen.weakest.device
    scribe.say(
        "devices.model",
        weakest.name,
        _why_these(facts, chosen),
        spec("hardware"),
        spec("devices"),
        device(weakest.name, "title"),
    )
    why = "the maker of these devices"
    scribe.say("devices.vendor", weakest.vendor, why, device(weakest.name, "vendor"))
    scribe.say(
        "devices.nodes", chosen.nodes, "number of nodes with these devices", spec("hardware")
    )
    scribe.say(
        "devices.per_node", len(chosen.places), "number of these devices per node", spec("hardware")
    )
    _name_devices(scribe, chosen)
    capability = weakest.compute_capability
    scribe.say(
        "devices.capability",
        f"{capability[0]}.{capability[1]}" if capability else None,
        "the weakest device limits them all" if capability else f"{weakest.vendor} has none",
        device(weakest.name, "compute_capability"),
    )
    memory = scribe.say(
        "devices.memory",
        chosen.memory,
        "total memory of the smallest device, as its driver reports it",
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
    names: tuple[str, ...] = ()
    if chosen.whole:
        why = "every device of the node is used"
    elif len(uuids) == len(chosen.places):
        names, why = uuids, "by UUID, which does not depend on the order of devices"
    else:
        names = tuple(str(place.index) for place in chosen.places)
        why = "by number in PCI order"
        if chosen.weakest.device.vendor == "nvidia":
            why += "; CUDA's default order is fastest first"
    scribe.say("devices.visible", names, why, spec("hardware"))


def _budgets(scribe: Scribe, memory: int, host: int) -> None:
    budget = scribe.facts.spec.budget
    given = scribe.say("devices.budget", *_bounded(scribe, budget.gpu_memory, memory, "gpu_memory"))
    is_free = budget.gpu_memory is None and given == memory
    scribe.say(
        "devices.reserve",
        round(RESERVE.value * memory / MIB) * MIB if is_free else 0,
        f"{RESERVE.value:.0%} for unforeseen needs" if is_free else "the budget is given",
        spec("budget.gpu_memory"),
    )
    scribe.say("devices.host_budget", *_bounded(scribe, budget.host_memory, host, "host_memory"))


def _bounded(scribe: Scribe, wish: float | None, total: int, name: str) -> tuple[int, str]:
    if wish is None:
        return total, f"all of it: budget.{name} is not given"
    asked = round(wish * total) if isinstance(wish, float) and wish <= 1 else int(wish)
    if asked > total:
        scribe.error(
            "E0501",
            (
                f"the budget of {format_bytes(asked)} is more than the {format_bytes(total)} "
                "available"
            ),
            f"budget.{name}",
            help=f"give at most {format_bytes(total)}, or a share such as 95%",
        )
    return min(asked, total), f"budget.{name} says so"
