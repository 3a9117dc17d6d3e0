"""The machines that a task requests: accelerators, memory, number, place, image."""

import re
from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, Json, derived, named, same
from tunec.targets.accelerate.ranks import counted, uses_every_device
from tunec.targets.skypilot.accelerators import MODELS, NAMES
from tunec.targets.skypilot.file_mounts import TASK_SCHEMA

_RESOURCES: Final = "skypilot 0.9.3 to 0.14.1 sky/utils/schemas.py `get_resources_schema`"
_GIB: Final = 2**30
_AT_LEAST: Final = re.compile(r"(\d{1,9})(?:GB|GiB)?\+?", re.IGNORECASE)


def _write_accelerators(plan: Plan) -> Mapping[str, Json]:
    name = NAMES.get(plan.devices.model)
    return {} if name is None else {_ACCELERATORS: {name: counted(plan)[1]}}


def _one(asked: Json) -> tuple[str, int]:
    """The name and number in `{L4: 2}` or `L4:2`. Raises ValueError for several alternatives."""
    if isinstance(asked, str):
        name, _, number = asked.partition(":")
        return name, int(number or 1)
    ((name, number),) = asked.items()
    return name, number


def _read_model(found: Mapping[str, Json]) -> Mapping[str, Any]:
    model = MODELS.get(_one(found[_ACCELERATORS])[0].lower())
    return {} if model is None else {"devices.model": model}


def _read_per_node(found: Mapping[str, Json]) -> Mapping[str, Any]:
    return {"devices.per_node": _one(found[_ACCELERATORS])[1]}


def _write_memory(plan: Plan) -> Mapping[str, Json]:
    """At least the requested host memory, in whole GiB."""
    return {_MEMORY: f"{-(-plan.job.host_memory // _GIB)}+"}


def _read_memory(found: Mapping[str, Json]) -> Mapping[str, Any]:
    size = _AT_LEAST.fullmatch(str(found[_MEMORY]))
    return {"job.host_memory": int(size[1]) * _GIB} if size else {}


def _is_whole(plan: Plan) -> bool:
    return plan.job.host_memory % _GIB == 0


def _write_image(plan: Plan) -> Mapping[str, Json]:
    return {} if plan.job.image is None else {_IMAGE: f"{_DOCKER}{plan.job.image}"}


def _read_image(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The container image; a machine image belongs to the cloud."""
    image = found[_IMAGE]
    is_container = isinstance(image, str) and image.startswith(_DOCKER)
    return {"job.image": image.removeprefix(_DOCKER)} if is_container else {}


_INFRA: Final = "resources.infra"
_IMAGE: Final = "resources.image_id"
_DOCKER: Final = "docker:"
_ACCELERATORS: Final = "resources.accelerators"
_MEMORY: Final = "resources.memory"
MACHINES: Final = (
    Entry(
        (_ACCELERATORS,),
        ("devices.model",),
        _write_accelerators,
        _read_model,
        f"{_RESOURCES}; skypilot-org/skypilot-catalog catalogs/v8/common/accelerators.csv",
    ),
    Entry(
        (_ACCELERATORS,),
        ("devices.per_node",),
        _write_accelerators,
        _read_per_node,
        _RESOURCES,
        when=lambda plan: uses_every_device(plan) and plan.devices.model in NAMES,
    ),
    Entry(
        (_MEMORY,), ("job.host_memory",), _write_memory, _read_memory, _RESOURCES, when=_is_whole
    ),
    Entry(
        (_MEMORY,),
        (),
        _write_memory,
        lambda _: {},
        f"{_RESOURCES}: whole GiB, rounded up",
        when=lambda plan: not _is_whole(plan),
    ),
    same(_INFRA, "job.infra", _RESOURCES, since="0.10", default=None),
    named("resources.use_spot", "job.spot", {True: True}, _RESOURCES, default=False),
    Entry(
        (_IMAGE,),
        ("job.image",),
        _write_image,
        _read_image,
        f"{_RESOURCES}; sky/skylet/constants.py `DOCKER_IMAGE_PREFIX`",
        absent=((ALWAYS, {"job.image": None}),),
    ),
    Entry(
        ("num_nodes",),
        ("devices.nodes",),
        lambda plan: {"num_nodes": counted(plan)[0]},
        lambda found: {"devices.nodes": found["num_nodes"]},
        TASK_SCHEMA,
        absent=((ALWAYS, {"devices.nodes": 1}),),
        when=uses_every_device,
    ),
    derived(
        "num_nodes",
        lambda plan: counted(plan)[0],
        TASK_SCHEMA,
        when=lambda plan: not uses_every_device(plan),
    ),
)
