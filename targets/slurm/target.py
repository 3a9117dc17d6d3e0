"""The slurm target: train.sbatch, and accelerate's settings if it starts the processes."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.consumers.moved_keys import gone
from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
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
    derived,
    same,
)
from tunec.targets.accelerate.config import ACCELERATE_CONFIG
from tunec.targets.accelerate.deepspeed import section_defaults
from tunec.targets.accelerate.packages import ACCELERATE
from tunec.targets.accelerate.ranks import processes, uses_every_device
from tunec.targets.delegation import by_manager
from tunec.targets.launch.target import LAUNCH_SH
from tunec.targets.slurm.script import SECTION, parse, render

_DAYS: Final = re.compile(r"(\d{1,4})-(\d{1,4})(?::(\d{1,4}))?(?::(\d{1,4}))?")
_PLAIN: Final = re.compile(r"(?:(\d{1,6}):)?(\d{1,6})(?::(\d{1,6}))?")
"""src/common/parse_time.c `time_str2secs`: days-hours[:minutes[:seconds]], else minutes[:seconds]
or hours:minutes:seconds."""


def written(seconds: int) -> str:
    """Seconds as `2-03:04:05`, without the days if there are none."""
    hours, rest = divmod(seconds, 3600)
    days, hours = divmod(hours, 24)
    clock = f"{hours:02}:{rest // 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def seconds_of(text: str) -> int | None:
    """The seconds of a duration; None for words (`UNLIMITED`) and other forms."""
    found = _DAYS.fullmatch(text)
    if found:
        days, hours, minutes, seconds = (int(each or 0) for each in found.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    parts = [int(each) for each in text.split(":")] if _PLAIN.fullmatch(text) else []
    if len(parts) == 3:
        return (parts[0] * 60 + parts[1]) * 60 + parts[2]
    return (parts[0] * 60 + (parts[1] if len(parts) == 2 else 0)) if parts else None


_MANUAL: Final = "Slurm 21.08 to 25.11 doc/man/man1/sbatch.1"
_PER_NODE: Final = re.compile(r"(?:[A-Za-z][\w.-]*:)?(\d{1,6})")
_GRES: Final = re.compile(r"(?:gres/)?gpu(?::[A-Za-z][\w.-]*)?:(\d{1,6})(?:\(.*\))?")
_SIZE: Final = re.compile(r"(\d{1,15})([KMGT]?)B?")
_UNITS: Final = {"K": 2**10, "": 2**20, "M": 2**20, "G": 2**30, "T": 2**40}


def _key(name: str) -> str:
    return f"{SECTION}.{name}"


def _chooses(plan: Plan) -> bool:
    """Whether the plan selects devices, which Slurm has no option for."""
    return bool(plan.devices.visible)


# ── nodes and devices ────────────────────────────────────────────────────────────────────────────


def _least(plan: Plan) -> int:
    """The number of devices that a node needs to contain those of the plan."""
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
    """The devices; on a whole node (`exclusive`) the run may use fewer than there are."""
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


# ── memory and time ──────────────────────────────────────────────────────────────────────────────


def _write_memory(plan: Plan) -> Mapping[str, Json]:
    asked = plan.job.host_memory
    unit = "M" if asked % _UNITS["G"] else "G"
    return {_key("mem"): f"{max(asked // _UNITS[unit], 1)}{unit}"}


def _read_memory(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The host memory; `--mem=0` is all memory of a node, whatever its size."""
    size = _SIZE.fullmatch(str(found[_key("mem")]).upper())
    bytes_ = int(size[1]) * _UNITS[size[2]] if size else 0
    return {"job.host_memory": bytes_} if bytes_ else {}


def _is_whole(plan: Plan) -> bool:
    return plan.job.host_memory % _UNITS["M"] == 0


_MEM: Final = f"{_MANUAL}: --mem, of each node; src/common/proc_args.c `str_to_mbytes`"
_MEMORY: Final = (
    Entry((_key("mem"),), ("job.host_memory",), _write_memory, _read_memory, _MEM, when=_is_whole),
    Entry(
        (_key("mem"),),
        (),
        _write_memory,
        lambda _: {},
        f"{_MEM}: whole MiB",
        when=lambda plan: not _is_whole(plan),
    ),
)


def _ends(plan: Plan) -> bool:
    """Whether the spec sets a time limit."""
    return plan.job.time_limit is not None


def _write_limit(plan: Plan) -> Mapping[str, Json]:
    return {} if plan.job.time_limit is None else {_key("time"): written(plan.job.time_limit)}


def _write_duration(plan: Plan) -> Mapping[str, Json]:
    return {} if plan.job.duration is None else {_key("time"): written(plan.job.duration)}


def _read_limit(found: Mapping[str, Json]) -> Mapping[str, Any]:
    seconds = seconds_of(str(found[_key("time")]))
    return {} if seconds is None else {"job.time_limit": seconds}


_TIME: Final = f"{_MANUAL}: --time; src/common/parse_time.c `time_str2secs`"
_LENGTH: Final = (
    Entry((_key("time"),), ("job.time_limit",), _write_limit, _read_limit, _TIME, when=_ends),
    Entry(
        (_key("time"),),
        (),
        _write_duration,
        lambda _: {},
        f"{_TIME}; a job that says how long it takes is scheduled into gaps (sched/backfill)",
        when=lambda plan: not _ends(plan),
    ),
)


# ── where it queues, and what the command needs ──────────────────────────────────────────────────


def _word(name: str, slot: str, source: str) -> Entry:
    """An option that holds a word; without it the cluster's default applies."""
    return same(_key(name), slot, f"{_MANUAL}: {source}", default=None)


def _cpus(plan: Plan) -> int:
    """A CPU for each process, and for each of its data loader workers."""
    counted = processes(plan)
    started = counted[1] if counted else plan.devices.per_node
    return started * (1 + plan.runtime.dataloader_workers)


def _is_one_step(plan: Plan) -> bool:
    """Whether a step of srun starts the run, as a container needs."""
    return not _chooses(plan)


_PYXIS: Final = "NVIDIA/pyxis v0.20.0 args.c `spank_opts`: --container-image of srun"
_JOB: Final = (
    same(_key("job_name"), "job.name", f"{_MANUAL}: --job-name"),
    _word("partition", "job.queue", "--partition"),
    _word("account", "job.account", "--account"),
    _word("qos", "job.qos", "--qos"),
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
_PREPARED: Final = (
    Entry(
        ("setup",),
        ("job.setup",),
        lambda plan: {"setup": list(plan.job.setup)} if plan.job.setup else {},
        lambda found: {"job.setup": tuple(found["setup"])},
        "bash 5 manual, section 3.3: a function of the script",
        absent=((ALWAYS, {"job.setup": ()}),),
    ),
    same("container", "job.image", _PYXIS, default=None, when=_is_one_step),
)


# ── the file ─────────────────────────────────────────────────────────────────────────────────────


def _by_name(plan: Plan, dialect: Dialect) -> Iterator[Diagnostic]:
    """Devices can only be selected on one node, since other nodes may number theirs differently."""
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
    if plan.job.duration is None and not _ends(plan):
        yield Diagnostic(
            "time-not-known",
            "note",
            "train.sbatch requests no time: the number of optimizer steps is not known",
            (Label("steps follow from it", path="data.samples"),),
            ("the partition's own limit holds, and the job waits for a gap of that length",),
            help="give data.samples or train.steps, or say it: `job: {time: 12h}`",
        )


def _is_batch(document: Json) -> bool:
    return isinstance(document, dict) and {SECTION, "launcher", "script"} <= set(document)


_LEAVES: Final = tuple(
    gone(
        f"{SECTION}.{option}",
        "slurm 23.11 doc/man/man1/sbatch.1",
        "the job that starts the new files decides where its logs lie, and who hears of it",
    )
    for option in ("output", "error", "open_mode", "mail_type", "mail_user", "overcommit")
)
TRAIN_SBATCH: Final = File(
    name="train.sbatch",
    format="shell",
    entries=(*_JOB, *_DEVICES, *_MEMORY, *_LENGTH, *_PREPARED, *LAUNCH_SH.entries),
    recognise=_is_batch,
    render=render,
    parse=parse,
    check=_by_name,
    leaves=_LEAVES,
)

_HERE: Final = frozenset(
    {
        *("parallel.world", "launch.launcher", "launch.environment", "launch.script"),
        *("devices.visible", "job.name", "job.setup", "job.queue", "job.account", "job.qos"),
    }
)
_INSTALLED: Final = "the environment is there: job.setup activates it, or job.image holds it"
_CANNOT: Final = {
    **by_manager("Slurm", _HERE, "job.namespace", "job.volume", "job.infra", "job.spot"),
    "devices.model": Cannot("the names of device kinds are the cluster's own (gres.conf `Type`)"),
    "devices.vendor": Cannot("what `gpu` means is the cluster's own (gres.conf)"),
    "job.host_memory": Cannot("--mem counts in MiB"),
    "job.time_limit": Cannot("not given: --time is the expected time, with a margin"),
    "job.duration": Cannot("--time holds it, and is read back as a limit"),
    **dict.fromkeys(("job.torch", "job.packages"), Cannot(_INSTALLED)),
    "job.image": Cannot(
        "a step starts the container, and the run has none: its devices are chosen",
        loses=True,
        harmless=(None,),
    ),
    "parallel.world": Cannot("the program that is started starts the other processes itself"),
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
    starts=(Start(("sbatch",), TRAIN_SBATCH.name, submits=True, needs_script=True),),
    takes_fsdp=True,
    verify="tunec.targets.slurm.verify",
)
