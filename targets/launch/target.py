"""The launch target: launch.sh, and accelerate's settings if it starts the processes."""

import shlex
from collections.abc import Iterator, Mapping
from operator import index
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.releases import Releases
from tunec.compiler.start_commands import Start
from tunec.compiler.target import (
    ALWAYS,
    Cannot,
    Dialect,
    Entry,
    File,
    Json,
    Target,
    in_no_plan,
    named,
    on_deepspeed,
)
from tunec.schemas.terms import VISIBLE, Vendor
from tunec.targets.accelerate.config import ACCELERATE_CONFIG, by_accelerate
from tunec.targets.accelerate.deepspeed import section_defaults
from tunec.targets.accelerate.packages import ACCELERATE
from tunec.targets.accelerate.ranks import counted, processes, uses_every_device
from tunec.targets.delegation import IDLE_DEVICES, by_trainer
from tunec.targets.launch.script import parse, render
from tunec.targets.words import words_of

_FP16 = "DS_ALLOW_DEPRECATED_FP16"
_SHELL = "bash 5 manual, section 3.7.4"


def _variables(plan: Plan) -> dict[str, str]:
    return dict(plan.launch.environment)


def _by_itself(plan: Plan) -> bool:
    return not by_accelerate(plan)


# ── variables ────────────────────────────────────────────────────────────────────────────────────

_ENVIRONMENT = Entry(
    ("environment",),
    ("launch.environment",),
    lambda plan: {"environment": _variables(plan)},
    lambda found: {"launch.environment": tuple(found["environment"].items())},
    _SHELL,
    absent=((ALWAYS, {"launch.environment": ()}),),
)


def _picks_by_flag(plan: Plan) -> bool:
    """DeepSpeed's launcher ignores CUDA_VISIBLE_DEVICES if a flag sets the number of devices."""
    return plan.launch.launcher == "deepspeed" and bool(plan.devices.visible)


def _picks_by_variable(plan: Plan) -> bool:
    return not _picks_by_flag(plan)


def _by_variable(vendor: Vendor) -> Entry:
    """The devices of one vendor, by the variable that its runtime reads."""
    key = f"environment.{VISIBLE[vendor]}"

    def write(plan: Plan) -> Mapping[str, Any]:
        value = _variables(plan).get(VISIBLE[vendor])
        return {} if value is None else {key: value}

    def read(found: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"devices.visible": tuple(found[key].split(",")) if found[key] else ()}

    return Entry(
        (key,),
        ("devices.visible",),
        write,
        read,
        "schemas/terms.py `VISIBLE`",
        absent=((ALWAYS, {"devices.visible": ()}),),
        when=lambda plan: _picks_by_variable(plan) and plan.devices.vendor == vendor,
    )


def _maker(vendor: Vendor) -> Entry:
    """The vendor of the devices that a script selects by that variable."""
    return Entry(
        (f"environment.{VISIBLE[vendor]}",),
        ("devices.vendor",),
        lambda _: {},
        lambda _: {"devices.vendor": vendor},
        "schemas/terms.py `VISIBLE`",
        when=in_no_plan,
    )


def _write_include(plan: Plan) -> Mapping[str, Any]:
    chosen = plan.devices.visible
    fits = processes(plan) == (1, len(chosen)) and all(name.isdigit() for name in chosen)
    return {"include": list(chosen)} if fits else {}


_DEVICES = (
    *map(_by_variable, VISIBLE),
    *map(_maker, VISIBLE),
    Entry(
        ("include",),
        ("devices.visible",),
        _write_include,
        lambda found: {"devices.visible": tuple(found["include"])},
        "deepspeed 0.14.5 to 0.19.8 launcher/runner.py `parse_resource_filter`: numbers only, and "
        "`main`: the flags win over CUDA_VISIBLE_DEVICES",
        when=_picks_by_flag,
    ),
)


def _write_fp16(plan: Plan) -> Mapping[str, Any]:
    value = _variables(plan).get(_FP16)
    return {} if value is None else {f"environment.{_FP16}": value}


_DEPRECATED = Entry(
    (f"environment.{_FP16}",),
    ("precision.deprecated_fp16",),
    _write_fp16,
    lambda found: {"precision.deprecated_fp16": found[f"environment.{_FP16}"] == "1"},
    "deepspeed 0.13.2 to 0.19.8 accelerator/cuda_accelerator.py `is_fp16_supported`",
    absent=((ALWAYS, {"precision.deprecated_fp16": False}),),
    when=on_deepspeed,
)


# ── the command ──────────────────────────────────────────────────────────────────────────────────

_LAUNCHERS: Final = ("python", "torchrun", "deepspeed", "accelerate")


def _write_processes(plan: Plan) -> Mapping[str, Any]:
    found = processes(plan)
    if found is None or (plan.launch.launcher == "python" and found[0] == 1):
        return {}
    return {"nodes": found[0], "per_node": found[1]}


def _read_world(found: Mapping[str, Any]) -> Mapping[str, Any]:
    if "per_node" not in found:
        return {}
    return {"parallel.world": index(found.get("nodes", 1)) * index(found["per_node"])}


def _read_devices(found: Mapping[str, Any]) -> Mapping[str, Any]:
    slots = {"nodes": "devices.nodes", "per_node": "devices.per_node"}
    return {slots[key]: value for key, value in found.items()}


def _starts_them(plan: Plan) -> bool:
    """Whether the launcher starts all processes; a program may start the others itself."""
    is_one = plan.launch.launcher == "python" and plan.parallel.world > 1
    return _by_itself(plan) and not is_one


def _by_ray(plan: Plan) -> bool:
    """Whether a program starts the others on several nodes, which Ray must join first."""
    return plan.launch.launcher == "python" and counted(plan)[0] > 1


def _starts_on_every_device(plan: Plan) -> bool:
    return _starts_them(plan) and uses_every_device(plan)


_PROCESSES = (
    Entry(
        ("nodes", "per_node"),
        ("parallel.world",),
        _write_processes,
        _read_world,
        "torch 2.13.0 distributed/run.py, deepspeed 0.14.5 to 0.19.8 launcher/runner.py",
        absent=((ALWAYS, {"parallel.world": 1}),),
        when=_starts_them,
    ),
    Entry(
        ("nodes", "per_node"),
        ("devices.nodes", "devices.per_node"),
        _write_processes,
        _read_devices,
        "one process a device",
        absent=((ALWAYS, {"devices.nodes": 1, "devices.per_node": 1}),),
        when=_starts_on_every_device,
    ),
    Entry(
        ("nodes",),
        (),
        _write_processes,
        lambda _: {},
        "accelerate 0.30.1 to 1.15.0 commands/launch.py: the rank of a node is a flag",
        when=by_accelerate,
    ),
    Entry(
        ("nodes", "per_node"),
        (),
        _write_processes,
        lambda _: {},
        "ray 2.9 to 2.50 scripts/scripts.py `start`: --num-gpus of each node",
        when=_by_ray,
    ),
)


def _write_script(plan: Plan) -> Mapping[str, Any]:
    return {"script": words_of(plan.launch.script)}


_COMMAND = (
    named("launcher", "launch.launcher", {name: name for name in _LAUNCHERS}, _SHELL),
    *_PROCESSES,
    Entry(
        ("script",),
        ("launch.script",),
        _write_script,
        lambda found: {"launch.script": shlex.join(found["script"])},
        _SHELL,
    ),
)


def _by_name(plan: Plan, _: Dialect) -> Iterator[Diagnostic]:
    """DeepSpeed's launcher selects devices only by number and on one node."""
    if not _picks_by_flag(plan) or _write_include(plan):
        return
    chosen = plan.devices.visible
    why = (
        "takes devices by number only"
        if not all(name.isdigit() for name in chosen)
        else "cannot choose devices on several nodes, nor fewer processes than it is given devices"
    )
    yield Diagnostic(
        "E0905",
        "error",
        f"the deepspeed launcher {why}, and the plan has {', '.join(chosen)}",
        (Label("chosen here", path="launcher"),),
        ("deepspeed 0.14.5 to 0.19.8 launcher/runner.py `parse_resource_filter`",),
        help="use `launcher: torchrun`, which starts DeepSpeed as well",
    )


def _is_launch(document: Json) -> bool:
    return isinstance(document, dict) and "launcher" in document and "script" in document


LAUNCH_SH: Final = File(
    name="launch.sh",
    format="shell",
    entries=(_ENVIRONMENT, *_DEVICES, _DEPRECATED, *_COMMAND),
    recognise=_is_launch,
    render=render,
    parse=parse,
    check=_by_name,
)

_HERE: Final = frozenset(
    {
        *("devices.nodes", "devices.per_node", "devices.visible", "precision.deprecated_fp16"),
        *("precision.compute", "states.autocast", "parallel.engine", "parallel.world"),
        "parallel.sequence",
        *("launch.launcher", "launch.environment", "launch.script"),
    }
)
_CANNOT: Final = {
    **{slot: by_trainer() for slot in SLOTS if slot not in _HERE},
    **IDLE_DEVICES,
    "parallel.world": Cannot("the program that is started starts the other processes itself"),
    "precision.compute": by_trainer(),
    "precision.deprecated_fp16": Cannot("only DeepSpeed asks for it"),
    "states.autocast": by_trainer(),
    "parallel.engine": by_trainer(),
    "parallel.sequence": Cannot(
        "only accelerate's file says it to a trainer", loses=True, harmless=(1,)
    ),
}

TARGET: Final = Target(
    name="launch",
    package="torch",
    supported=Releases(">=2.0,<3"),
    latest="2.13.0",
    releases=("2.13.0",),
    files=(LAUNCH_SH, ACCELERATE_CONFIG),
    cannot=_CANNOT,
    beside={"accelerate": ACCELERATE},
    together=section_defaults,
    starts=(Start(("bash",), LAUNCH_SH.name, needs_script=True),),
    takes_fsdp=True,
    verify="tunec.targets.launch.verify",
)
