"""The rows that both manifests have, each at the keys of its own API."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Entry, Json, in_every_plan, on_deepspeed
from tunec.schemas.frozen import dataclass
from tunec.targets.accelerate.processes import processes
from tunec.targets.kubeflow.container import gives_all

Part = tuple[str, Callable[[Plan], Json], Callable[[Json], Mapping[str, Any]]]
"""A key, its value for a plan, and what a value settles."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Where one API has what both say; a replica's container holds all of the last three."""

    nodes: tuple[Part, ...]
    processes: Part
    variables: Part
    resources: Part
    command: Part
    source: str
    package: str = ""


def _has_memory(plan: Plan) -> bool:
    return plan.devices.host_budget is not None


def _comes_out_even(plan: Plan) -> bool:
    return processes(plan) is not None


def rows(keys: Keys) -> tuple[Entry, ...]:
    """The rows of one manifest."""
    return (
        _row(keys, ("parallel.world",), (*keys.nodes, keys.processes), even=True),
        _row(keys, ("devices.nodes",), keys.nodes, gives_all),
        _row(keys, (), keys.nodes),
        _row(keys, ("devices.per_node",), (keys.resources,), gives_all),
        _row(keys, ("devices.host_budget",), (keys.resources,), _has_memory),
        _row(keys, (), (keys.resources,)),
        _row(keys, ("launch.environment",), (keys.variables,)),
        _row(keys, ("precision.deprecated_fp16",), (keys.variables,), on_deepspeed),
        _row(keys, ("launch.launcher",), (keys.command,)),
        _row(keys, ("launch.script",), (keys.command,)),
    )


def _row(
    keys: Keys,
    slots: tuple[str, ...],
    parts: tuple[Part, ...],
    when: Callable[[Plan], bool] = in_every_plan,
    *,
    even: bool = False,
) -> Entry:
    """A row of several keys; numbers of nodes add up, and times processes they are the world."""

    def write(plan: Plan) -> Mapping[str, Json]:
        if even and not _comes_out_even(plan):
            return {}
        values = {key: make(plan) for key, make, _ in parts}
        return {key: value for key, value in values.items() if value is not None}

    def read(found: Mapping[str, Json]) -> Mapping[str, Any]:
        said: dict[str, Any] = {}
        for key, _, settle in parts:
            for slot, value in settle(found[key]).items() if key in found else ():
                adds = slot == _NODES and slot in said
                said[slot] = said[slot] + value if adds else value
        if _EACH in said:
            said["parallel.world"] = said.get(_NODES, 1) * said.pop(_EACH)
        return {slot: said[slot] for slot in slots if slot in said}

    names = tuple(key for key, _, _ in parts)
    return Entry(names, slots, write, read, keys.source, when=when, package=keys.package)


_NODES: Final = "devices.nodes"
_EACH: Final = "processes of each node"


def nodes(value: Json) -> Mapping[str, Any]:
    """Nodes, as far as a key counts them."""
    return {_NODES: value}


def each(value: Json) -> Mapping[str, Any]:
    """Processes of a node; a word like `auto` leaves them to the node."""
    number = value if isinstance(value, int) else int(value) if str(value).isdecimal() else None
    return {} if number is None else {_EACH: number}
