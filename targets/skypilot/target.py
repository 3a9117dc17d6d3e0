"""The skypilot target: task.yaml, and accelerate's settings if it starts the processes."""

import shlex
from collections.abc import Iterator, Mapping
from operator import index
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.wording import joined
from tunec.compiler.ir.plan import Plan
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
    constant,
    on_deepspeed,
    same,
)
from tunec.targets.accelerate.config import ACCELERATE_CONFIG, by_accelerate
from tunec.targets.accelerate.deepspeed import section_defaults
from tunec.targets.accelerate.packages import ACCELERATE
from tunec.targets.accelerate.ranks import counted
from tunec.targets.delegation import by_manager
from tunec.targets.launch.node_setup import called, local_files, setup_text, without_setup
from tunec.targets.launch.script import command, is_spread, parse
from tunec.targets.skypilot.file_mounts import BROUGHT, TASK_SCHEMA, chosen_python, mounted
from tunec.targets.skypilot.machines import MACHINES
from tunec.targets.words import words_of

_FP16: Final = "DS_ALLOW_DEPRECATED_FP16"


# ── variables ────────────────────────────────────────────────────────────────────────────────────


def _read_environment(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The variables; one without a value must be given on the command line."""
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
        TASK_SCHEMA,
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
    if plan.launch.launcher != "python" or nodes > 1:
        values |= {"nodes": nodes, "per_node": per_node}
    meeting = _MEETING if is_spread(values) else ""
    if meeting and plan.launch.launcher == "deepspeed":
        meeting += _hosts(per_node)
    setup = plan.job.setup
    prepared = f"set -euo pipefail\n{setup_text(setup)}{called(setup)}"
    prepared += chosen_python(plan)
    return {"run": f"{prepared}{meeting}{command(values, _CONFIG, '')}\n"}


_CONFIG: Final = "skypilot/accelerate.yaml"
"""The path that `run` sees, which works in the root of the bundle."""


def _hosts(per_node: int) -> str:
    """The host file of DeepSpeed's launcher (deepspeed 0.19.8 launcher/runner.py)."""
    return (
        'HOSTFILE="$(mktemp)"\n'
        f'sed \'s/$/ slots={per_node}/\' <<< "${{SKYPILOT_NODE_IPS}}" > "${{HOSTFILE}}"\n'
    )


def _read_launcher(found: Mapping[str, Json]) -> Mapping[str, Any]:
    said = parse(without_setup(found["run"]))
    return {"launch.launcher": said["launcher"]} if "launcher" in said else {}


def _read_script(found: Mapping[str, Json]) -> Mapping[str, Any]:
    said = parse(without_setup(found["run"]))
    return {"launch.script": shlex.join(said["script"])} if "script" in said else {}


def _read_world(found: Mapping[str, Json]) -> Mapping[str, Any]:
    said = parse(without_setup(found["run"]))
    if said.get("launcher") == "python":
        return {"parallel.world": 1}
    if "per_node" not in said:
        return {}
    return {"parallel.world": index(said.get("nodes", 1)) * index(said["per_node"])}


def _by_launcher(plan: Plan) -> bool:
    """Whether flags of the launcher set the number of processes."""
    by_program = plan.launch.launcher == "python" and plan.parallel.world > 1
    return not by_accelerate(plan) and not by_program


_COMMAND: Final = (
    Entry(("run",), ("launch.launcher",), _write_run, _read_launcher, TASK_SCHEMA),
    Entry(("run",), ("launch.script",), _write_run, _read_script, TASK_SCHEMA),
    Entry(
        ("run",),
        ("parallel.world",),
        _write_run,
        _read_world,
        f"{TASK_SCHEMA}; the launchers' own flags",
        when=_by_launcher,
    ),
)


# ── the file ─────────────────────────────────────────────────────────────────────────────────────


def _beyond(plan: Plan, _: Dialect) -> Iterator[Diagnostic]:
    """Files that cannot be mounted at the path that the run uses."""
    files = tuple(each for each in local_files(plan) if mounted(each) is None)
    if files:
        yield Diagnostic(
            "E0905",
            "error",
            f"{joined(files, 'and')} cannot lie on a machine where the run looks for it",
            (Label("requested here", path="targets"),),
            ("SkyPilot works in ~/sky_workdir, and mounts files below a home directory",),
            help="write the bundle into a directory beside the files that it reads",
        )


def _unbounded(plan: Plan) -> Iterator[Diagnostic]:
    """Warns of a time limit: skypilot 0.9.3 to 0.14.1 client/cli `launch` has `--down` only."""
    if plan.job.time_limit is not None:
        yield Diagnostic(
            "time-not-bounded",
            "warning",
            "nothing ends the task after that time: SkyPilot has no limit for one",
            (Label("requested here", path="job.time"),),
            ("the machines are rented until they are taken down, and so beyond the task's end",),
            help="start it with `bash run.sh --down`, which takes them down when the task ends",
        )


def _check(plan: Plan, dialect: Dialect) -> Iterator[Diagnostic]:
    yield from _beyond(plan, dialect)
    yield from _unbounded(plan)


def _is_task(document: Json) -> bool:
    if not isinstance(document, dict) or not isinstance(document.get("run"), str):
        return False
    return bool({"resources", "num_nodes", "envs", "workdir", "setup"} & set(document))


TASK: Final = File(
    name="task.yaml",
    format="yaml",
    entries=(
        same("name", "job.name", TASK_SCHEMA),
        constant("workdir", ".", f"{TASK_SCHEMA}: `run` starts where this is copied to"),
        *MACHINES,
        *_VARIABLES,
        *BROUGHT,
        *_COMMAND,
    ),
    recognise=_is_task,
    check=_check,
)

_HERE: Final = frozenset(
    {
        *("devices.model", "launch.launcher", "launch.environment", "launch.script"),
        *("job.name", "job.setup", "job.image", "job.spot"),
    }
)
_OTHERS: Final = ("job.queue", "job.account", "job.qos", "job.namespace", "job.volume")
_INSIDE: Final = "the spec's own image holds what is needed"
_CANNOT: Final = {
    **by_manager("SkyPilot", _HERE, *_OTHERS),
    "devices.visible": Cannot(
        "SkyPilot gives each task devices of its choice (sky/skylet/log_lib.py "
        "`add_ray_env_vars`: CUDA_VISIBLE_DEVICES)",
        loses=True,
        harmless=((),),
    ),
    "devices.vendor": Cannot("the name of the accelerator says it"),
    "job.host_memory": Cannot("`resources.memory` counts in whole GiB"),
    "job.duration": Cannot("machines are rented until the task ends"),
    "job.time_limit": Cannot("a task has no limit; `sky launch --down` ends the rent with it"),
    "job.torch": Cannot(_INSIDE),
    "job.packages": Cannot(_INSIDE),
    "job.infra": Cannot("`resources.infra` came with 0.10", loses=True, harmless=(None,)),
    "parallel.world": Cannot("accelerate.yaml, or the program that is started, says it"),
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
    starts=(Start(("sky", "launch"), TASK.name, submits=True, needs_script=True, elsewhere=True),),
    takes_fsdp=True,
    verify="tunec.targets.skypilot.verify",
)
