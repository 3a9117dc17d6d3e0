"""The slurm target: train.sbatch, and what accelerate is told where it starts the processes."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.releases import Releases
from tunec.compiler.starting import Start
from tunec.compiler.target import (
    Cannot,
    Dialect,
    Entry,
    File,
    Json,
    Target,
    constant,
    derived,
)
from tunec.targets.accelerate.config import ACCELERATE_CONFIG
from tunec.targets.accelerate.packages import ACCELERATE
from tunec.targets.accelerate.processes import processes, uses_every_device
from tunec.targets.accelerate.sections import section_defaults
from tunec.targets.launch.target import LAUNCH_SH
from tunec.targets.slurm.script import SECTION, parse, render

_MANUAL: Final = "Slurm 21.08 to 25.11 doc/man/man1/sbatch.1"
_PER_NODE: Final = re.compile(r"(?:[A-Za-z][\w.-]*:)?(\d{1,6})")
_GRES: Final = re.compile(r"(?:gres/)?gpu(?::[A-Za-z][\w.-]*)?:(\d{1,6})(?:\(.*\))?")
_SIZE: Final = re.compile(r"(\d{1,15})([KMGT]?)B?")
_UNITS: Final = {"K": 2**10, "": 2**20, "M": 2**20, "G": 2**30, "T": 2**40}
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]+")


def _key(name: str) -> str:
    return f"{SECTION}.{name}"


def _chooses(plan: Plan) -> bool:
    """Whether the plan names its devices, which Slurm has no option for."""
    return bool(plan.devices.visible)


# ── nodes and devices ────────────────────────────────────────────────────────────────────────────


def _least(plan: Plan) -> int:
    """Devices that a node needs so that those of the plan are among them."""
    numbers = [int(name) for name in plan.devices.visible if name.isdecimal()]
    return max([len(plan.devices.visible), *(number + 1 for number in numbers)])


def _write_devices(plan: Plan) -> Mapping[str, Json]:
    counted = processes(plan)
    if counted is None:
        return {}
    if _chooses(plan):
        asked = {"exclusive": True, "nodes": counted[0], "gpus_per_node": _least(plan)}
    else:
        asked = {"nodes": counted[0], "gpus_per_node": counted[1]}
    return {_key(name): value for name, value in asked.items()}


def _read_devices(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """Of a whole node (`exclusive`) the run may use fewer devices than there are."""
    values: dict[str, Any] = {}
    if isinstance(found.get(_key("nodes")), int):
        values["devices.nodes"] = found[_key("nodes")]
    key = "gpus_per_node" if _key("gpus_per_node") in found else "gres"
    form = _PER_NODE if key == "gpus_per_node" else _GRES
    count = form.fullmatch(str(found.get(_key(key), "")))
    if count is not None and _key("exclusive") not in found:
        values["devices.per_node"] = int(count[1])
    return values


_OPTIONS: Final = tuple(map(_key, ("nodes", "gpus_per_node", "gres", "exclusive")))


def _gives_all(plan: Plan) -> bool:
    return uses_every_device(plan) and not _chooses(plan)


def _gives_some(plan: Plan) -> bool:
    return not _gives_all(plan)


_DEVICES: Final = (
    Entry(
        _OPTIONS,
        ("devices.nodes", "devices.per_node"),
        _write_devices,
        _read_devices,
        f"{_MANUAL}: --nodes, --gpus-per-node, --gres",
        when=_gives_all,
    ),
    Entry(
        _OPTIONS,
        (),
        _write_devices,
        lambda _: {},
        f"{_MANUAL}: --exclusive gives the job every device of the node",
        when=_gives_some,
    ),
)


# ── memory of the host ───────────────────────────────────────────────────────────────────────────


def _write_memory(plan: Plan) -> Mapping[str, Json]:
    budget = plan.devices.host_budget
    if budget is None:
        return {}
    unit = "M" if budget % _UNITS["G"] else "G"
    return {_key("mem"): f"{max(budget // _UNITS[unit], 1)}{unit}"}


def _read_memory(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """`--mem=0` is all of a node's memory, however much that is."""
    size = _SIZE.fullmatch(str(found[_key("mem")]).upper())
    bytes_ = int(size[1]) * _UNITS[size[2]] if size else 0
    return {"devices.host_budget": bytes_} if bytes_ else {}


def _is_whole(plan: Plan) -> bool:
    budget = plan.devices.host_budget
    return budget is not None and budget % _UNITS["M"] == 0


def _is_cut(plan: Plan) -> bool:
    return plan.devices.host_budget is not None and not _is_whole(plan)


_MEM: Final = f"{_MANUAL}: --mem, of each node; src/common/proc_args.c `str_to_mbytes`"
_MEMORY: Final = (
    Entry(
        (_key("mem"),),
        ("devices.host_budget",),
        _write_memory,
        _read_memory,
        _MEM,
        when=_is_whole,
    ),
    Entry((_key("mem"),), (), _write_memory, lambda _: {}, f"{_MEM}: whole MiB", when=_is_cut),
)


# ── what the command needs ───────────────────────────────────────────────────────────────────────


def _name(plan: Plan) -> str:
    """What the queue calls the job: the model's own name."""
    return _UNSAFE.sub("-", plan.model.path.rstrip("/").rpartition("/")[2]).strip("-") or "train"


def _cpus(plan: Plan) -> int:
    """A CPU for each process, and for each of its data loading processes."""
    counted = processes(plan)
    started = counted[1] if counted else plan.devices.per_node
    return started * (1 + plan.runtime.dataloader_workers)


_JOB: Final = (
    derived(_key("job_name"), _name, f"{_MANUAL}: --job-name"),
    constant(_key("output"), "%x-%j.out", f"{_MANUAL}: filename pattern"),
    constant(
        _key("ntasks_per_node"),
        1,
        f"{_MANUAL}: --ntasks-per-node; the launcher starts a process for each device",
    ),
    derived(
        _key("cpus_per_task"),
        _cpus,
        f"{_MANUAL}: --cpus-per-task; torch 2.13.0 utils/data/dataloader.py `num_workers`",
    ),
)


# ── the file ─────────────────────────────────────────────────────────────────────────────────────


def _by_name(plan: Plan, dialect: Dialect) -> Iterator[Diagnostic]:
    """Devices are chosen on one node only: other nodes would have to name theirs alike."""
    yield from LAUNCH_SH.check(plan, dialect)
    counted = processes(plan)
    if _chooses(plan) and counted is not None and counted[0] > 1:
        yield Diagnostic(
            "E0905",
            "error",
            "Slurm chooses the devices of each node, and the plan has "
            f"{', '.join(plan.devices.visible)} on {counted[0]} nodes",
            (Label("chosen here", path="devices.visible"),),
            (f"{_MANUAL}: options count devices and name their kind",),
            help="leave `devices` out of the cluster, so that Slurm gives each job its own",
        )


def _is_batch(document: Json) -> bool:
    return isinstance(document, dict) and {SECTION, "launcher", "script"} <= set(document)


TRAIN_SBATCH: Final = File(
    name="train.sbatch",
    format="shell",
    entries=(*_JOB, *_DEVICES, *_MEMORY, *LAUNCH_SH.entries),
    recognise=_is_batch,
    render=render,
    parse=parse,
    check=_by_name,
)

_TRAINER: Final = "the trainer's own files say it"
_IDLE: Final = "the plan leaves devices idle, and starts processes on the others"
_HERE: Final = frozenset(
    {"parallel.world", "launch.launcher", "launch.environment", "launch.script", "devices.visible"}
)
_CANNOT: Final = {
    **{slot: Cannot(_TRAINER) for slot in SLOTS if slot not in _HERE},
    "devices.model": Cannot("the names of device kinds are the cluster's own (gres.conf `Type`)"),
    "devices.nodes": Cannot(_IDLE),
    "devices.per_node": Cannot(_IDLE),
    "devices.host_budget": Cannot("--mem counts in MiB; unknown, the partition's limit holds"),
    "precision.deprecated_fp16": Cannot("only DeepSpeed asks for it"),
}

TARGET: Final = Target(
    name="slurm",
    package="slurm",
    supported=Releases(">=21.8,<26"),
    latest="25.11.7",
    releases=(
        *("21.08.8", "22.05.11", "23.02.8", "23.11.11", "24.05.8", "24.11.7", "25.05.8"),
        "25.11.7",
    ),
    files=(TRAIN_SBATCH, ACCELERATE_CONFIG),
    cannot=_CANNOT,
    beside={"accelerate": ACCELERATE},
    together=section_defaults,
    takes_fsdp=True,
    starts=(Start(("sbatch",), TRAIN_SBATCH.name, submits=True, needs_script=True),),
    verify="tunec.targets.slurm.verify",
)
