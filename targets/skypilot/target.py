"""The skypilot target: task.yaml, and what accelerate is told where it starts the processes."""

import re
import shlex
from collections.abc import Mapping
from operator import index
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.releases import Releases
from tunec.compiler.starting import Start
from tunec.compiler.target import (
    ALWAYS,
    Cannot,
    Entry,
    File,
    Json,
    Target,
    constant,
    derived,
    on_deepspeed,
)
from tunec.targets.accelerate.config import ACCELERATE_CONFIG, by_accelerate
from tunec.targets.accelerate.packages import ACCELERATE
from tunec.targets.accelerate.processes import counted, uses_every_device
from tunec.targets.accelerate.sections import section_defaults
from tunec.targets.launch.script import command, is_spread, parse
from tunec.targets.skypilot.accelerators import MODELS, NAMES
from tunec.targets.words import words_of

_TASK: Final = "skypilot 0.9.3 to 0.14.1 sky/utils/schemas.py `get_task_schema`"
_RESOURCES: Final = "skypilot 0.9.3 to 0.14.1 sky/utils/schemas.py `get_resources_schema`"
_GIB: Final = 2**30
_FP16: Final = "DS_ALLOW_DEPRECATED_FP16"
_UNSAFE: Final = re.compile(r"[^a-z0-9]+")
_AT_LEAST: Final = re.compile(r"(\d{1,9})(?:GB|GiB)?\+?", re.IGNORECASE)


# ── machines ─────────────────────────────────────────────────────────────────────────────────────


def _write_accelerators(plan: Plan) -> Mapping[str, Json]:
    name = NAMES.get(plan.devices.model)
    return {} if name is None else {_ACCELERATORS: {name: counted(plan)[1]}}


def _one(asked: Json) -> tuple[str, int]:
    """Name and number, of `{L4: 2}` and of `L4:2`; ValueError for a choice of several."""
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
    """At least the host memory that the run may take, in whole GiB."""
    budget = plan.devices.host_budget
    return {} if budget is None else {_MEMORY: f"{-(-budget // _GIB)}+"}


def _read_memory(found: Mapping[str, Json]) -> Mapping[str, Any]:
    size = _AT_LEAST.fullmatch(str(found[_MEMORY]))
    return {"devices.host_budget": int(size[1]) * _GIB} if size else {}


def _is_whole(plan: Plan) -> bool:
    return plan.devices.host_budget is not None and plan.devices.host_budget % _GIB == 0


_ACCELERATORS: Final = "resources.accelerators"
_MEMORY: Final = "resources.memory"
_MACHINES: Final = (
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
        (_MEMORY,),
        ("devices.host_budget",),
        _write_memory,
        _read_memory,
        _RESOURCES,
        when=_is_whole,
    ),
    Entry(
        (_MEMORY,),
        (),
        _write_memory,
        lambda _: {},
        f"{_RESOURCES}: whole GiB, rounded up",
        when=lambda plan: not _is_whole(plan),
    ),
    Entry(
        ("num_nodes",),
        ("devices.nodes",),
        lambda plan: {"num_nodes": counted(plan)[0]},
        lambda found: {"devices.nodes": found["num_nodes"]},
        _TASK,
        absent=((ALWAYS, {"devices.nodes": 1}),),
        when=uses_every_device,
    ),
    derived(
        "num_nodes",
        lambda plan: counted(plan)[0],
        _TASK,
        when=lambda plan: not uses_every_device(plan),
    ),
)


# ── variables ────────────────────────────────────────────────────────────────────────────────────


def _read_environment(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """A variable without a value must be given on the command line."""
    pairs = ((name, value) for name, value in found["envs"].items() if value is not None)
    return {"launch.environment": tuple((name, str(value)) for name, value in pairs)}


def _write_envs(plan: Plan) -> Mapping[str, Json]:
    return {"envs": dict(plan.launch.environment)}


_VARIABLES: Final = (
    Entry(
        ("envs",),
        ("launch.environment",),
        _write_envs,
        _read_environment,
        _TASK,
        absent=((ALWAYS, {"launch.environment": ()}),),
    ),
    Entry(
        ("envs",),
        ("precision.deprecated_fp16",),
        _write_envs,
        lambda found: {"precision.deprecated_fp16": str(found["envs"].get(_FP16)) == "1"},
        "deepspeed 0.13.2 to 0.19.8 accelerator/cuda_accelerator.py `is_fp16_supported`",
        absent=((ALWAYS, {"precision.deprecated_fp16": False}),),
        when=on_deepspeed,
    ),
)


# ── the command ──────────────────────────────────────────────────────────────────────────────────

_MEETING: Final = (
    'NODE_RANK="${SKYPILOT_NODE_RANK}"\n'
    'MASTER_ADDR="$(head -n 1 <<< "${SKYPILOT_NODE_IPS}")"\n'
    "MASTER_PORT=29500\n"
)
"""skypilot 0.9.3 to 0.14.1 sky/skylet/constants.py `SKYPILOT_NODE_RANK`, `SKYPILOT_NODE_IPS`."""


def _write_run(plan: Plan) -> Mapping[str, Json]:
    nodes, per_node = counted(plan)
    values: dict[str, Json] = {
        "launcher": plan.launch.launcher,
        "script": words_of(plan.launch.script),
    }
    if plan.launch.launcher != "python":
        values |= {"nodes": nodes, "per_node": per_node}
    meeting = _MEETING if is_spread(values) else ""
    if meeting and plan.launch.launcher == "deepspeed":
        meeting += _hosts(per_node)
    return {"run": f"{meeting}{command(values, 'skypilot/accelerate.yaml', '')}\n"}


def _hosts(per_node: int) -> str:
    """The host file of DeepSpeed's launcher (deepspeed 0.19.8 launcher/runner.py)."""
    return (
        'HOSTFILE="$(mktemp)"\n'
        f'sed \'s/$/ slots={per_node}/\' <<< "${{SKYPILOT_NODE_IPS}}" > "${{HOSTFILE}}"\n'
    )


def _read_launcher(found: Mapping[str, Json]) -> Mapping[str, Any]:
    said = parse(found["run"])
    return {"launch.launcher": said["launcher"]} if "launcher" in said else {}


def _read_script(found: Mapping[str, Json]) -> Mapping[str, Any]:
    said = parse(found["run"])
    return {"launch.script": shlex.join(said["script"])} if "script" in said else {}


def _read_world(found: Mapping[str, Json]) -> Mapping[str, Any]:
    said = parse(found["run"])
    if said.get("launcher") == "python":
        return {"parallel.world": 1}
    if "per_node" not in said:
        return {}
    return {"parallel.world": index(said.get("nodes", 1)) * index(said["per_node"])}


_COMMAND: Final = (
    Entry(("run",), ("launch.launcher",), _write_run, _read_launcher, _TASK),
    Entry(("run",), ("launch.script",), _write_run, _read_script, _TASK),
    Entry(
        ("run",),
        ("parallel.world",),
        _write_run,
        _read_world,
        f"{_TASK}; the launchers' own flags",
        when=lambda plan: not by_accelerate(plan),
    ),
)


# ── the file ─────────────────────────────────────────────────────────────────────────────────────


def _name(plan: Plan) -> str:
    last = plan.model.path.rstrip("/").rpartition("/")[2].lower()
    return f"train-{_UNSAFE.sub('-', last).strip('-')}".strip("-")


def _is_task(document: Json) -> bool:
    if not isinstance(document, dict) or not isinstance(document.get("run"), str):
        return False
    return bool({"resources", "num_nodes", "envs", "workdir", "setup"} & set(document))


TASK: Final = File(
    name="task.yaml",
    format="yaml",
    entries=(
        derived("name", _name, _TASK),
        constant("workdir", ".", f"{_TASK}: `run` starts where this is copied to"),
        *_MACHINES,
        *_VARIABLES,
        *_COMMAND,
    ),
    recognise=_is_task,
)

_HERE: Final = ("devices.model", "launch.launcher", "launch.environment", "launch.script")
_IDLE: Final = "the plan leaves devices idle, and starts processes on the others"
_CANNOT: Final = {
    **{slot: Cannot("the trainer's own files say it") for slot in SLOTS if slot not in _HERE},
    "devices.nodes": Cannot(_IDLE),
    "devices.per_node": Cannot(_IDLE),
    "devices.visible": Cannot(
        "SkyPilot gives each task devices of its choice (sky/skylet/log_lib.py "
        "`add_ray_env_vars`: CUDA_VISIBLE_DEVICES)",
        loses=True,
        harmless=((),),
    ),
    "devices.host_budget": Cannot("`resources.memory` counts in whole GiB"),
    "precision.deprecated_fp16": Cannot("only DeepSpeed asks for it"),
    "parallel.world": Cannot("accelerate.yaml says it where accelerate starts the processes"),
}

TARGET: Final = Target(
    name="skypilot",
    package="skypilot",
    supported=Releases(">=0.9,<0.15"),
    latest="0.14.1",
    releases=("0.9.3", "0.10.5", "0.11.2", "0.12.3", "0.13.0", "0.14.1"),
    files=(TASK, ACCELERATE_CONFIG),
    cannot=_CANNOT,
    beside={"accelerate": ACCELERATE},
    together=section_defaults,
    takes_fsdp=True,
    starts=(Start(("sky", "launch"), TASK.name, submits=True, needs_script=True),),
    verify="tunec.targets.skypilot.verify",
)
