"""The rows that both manifests share, each with the keys of its own API."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, Json, in_every_plan, on_deepspeed, same
from tunec.targets.accelerate.ranks import processes
from tunec.targets.kubeflow.container import gives_all
from tunec.targets.kubeflow.pods import read_claim, torch_of, usual_image

Part = tuple[str, Callable[[Plan], Json], Callable[[Json], Mapping[str, Any]]]
"""A key, the function that writes its value for a plan, and the function that reads it."""


class Keys(Struct, frozen=True):
    """The keys of one API for the settings that both manifests share."""

    nodes: tuple[Part, ...]
    processes: Part
    variables: Part
    resources: Part
    command: Part
    image: Part
    source: str
    package: str = ""


def _comes_out_even(plan: Plan) -> bool:
    return processes(plan) is not None


def rows(keys: Keys) -> tuple[Entry, ...]:
    """The rows of one manifest."""
    return (
        _row(keys, ("parallel.world",), (*keys.nodes, keys.processes), even=True),
        _row(keys, ("devices.nodes",), keys.nodes, gives_all),
        _row(keys, (), keys.nodes),
        _row(keys, ("devices.per_node",), (keys.resources,), gives_all),
        _row(keys, ("job.host_memory",), (keys.resources,)),
        _row(keys, ("devices.vendor",), (keys.resources,)),
        _row(keys, ("launch.environment",), (keys.variables,)),
        _row(keys, ("precision.deprecated_fp16",), (keys.variables,), on_deepspeed),
        _row(keys, ("launch.launcher",), (keys.command,)),
        _row(keys, ("launch.script",), (keys.command,)),
        _row(keys, ("job.setup",), (keys.command,)),
        _row(keys, ("job.packages",), (keys.command,), _installs),
        _row(keys, ("job.image",), (keys.image,), lambda plan: not _installs(plan)),
        _row(keys, ("job.torch",), (keys.image,), _has_torch),
        _row(keys, (), (keys.image,), _installs),
    )


def named(keys: Keys, name: Callable[[Plan], str]) -> tuple[Entry, ...]:
    """Rows for the job's name, namespace and queue."""
    metadata = (
        Entry(
            ("metadata.name",),
            ("job.name",),
            lambda plan: {"metadata.name": name(plan)},
            lambda found: {"job.name": found["metadata.name"]},
            keys.source,
            when=lambda plan: name(plan) == plan.job.name,
            package=keys.package,
        ),
        Entry(
            ("metadata.name",),
            (),
            lambda plan: {"metadata.name": name(plan)},
            lambda _: {},
            f"{keys.source}: an RFC 1035 label",
            when=lambda plan: name(plan) != plan.job.name,
            package=keys.package,
        ),
    )
    return (
        *metadata,
        same(
            "metadata.namespace",
            "job.namespace",
            f"{keys.source} ObjectMeta",
            default=None,
            package=keys.package,
        ),
        Entry(
            ("metadata.labels",),
            ("job.queue",),
            _write_queue,
            lambda found: {"job.queue": found["metadata.labels"].get(_QUEUE)},
            "kubernetes-sigs/kueue pkg/controller/constants/constants.go `QueueLabel`",
            absent=((ALWAYS, {"job.queue": None}),),
            package=keys.package,
        ),
    )


def volume(
    key: str,
    write: Callable[[Plan], Json],
    listed: Callable[[Json], Sequence[Json]],
    source: str,
    *,
    since: str | None = None,
    until: str | None = None,
    package: str = "",
) -> Entry:
    """The row for the mounted volume; `listed` finds the volumes in the key's value."""
    return Entry(
        (key,),
        ("job.volume",),
        lambda plan: {key: write(plan)},
        lambda found: read_claim(listed(found[key])),
        source,
        since,
        until,
        package=package,
    )


_QUEUE: Final = "kueue.x-k8s.io/queue-name"


def _write_queue(plan: Plan) -> Mapping[str, Json]:
    queue = plan.job.queue
    return {} if queue is None else {"metadata.labels": {_QUEUE: queue}}


def _installs(plan: Plan) -> bool:
    """Whether the image is PyTorch's own, in which packages must be installed."""
    return plan.job.image is None


def _has_torch(plan: Plan) -> bool:
    image = usual_image(plan)
    return _installs(plan) and image is not None and torch_of(image) is not None


def _row(
    keys: Keys,
    slots: tuple[str, ...],
    parts: tuple[Part, ...],
    when: Callable[[Plan], bool] = in_every_plan,
    *,
    even: bool = False,
) -> Entry:
    """A row of several keys; node counts add up, and nodes times processes are the world size."""

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
    """The number of nodes that a key gives."""
    return {_NODES: value}


def each(value: Json) -> Mapping[str, Any]:
    """Processes per node; nothing for a word such as `auto`, with which the node decides."""
    number = value if isinstance(value, int) else int(value) if str(value).isdecimal() else None
    return {} if number is None else {_EACH: number}
