"""Tasks, srun and variables under Slurm."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.frontend.shell_launch import STARTERS
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.launch import (
    StartedCommands,
    batch_of,
    count,
    launches,
    per_node,
    variable,
)
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace
from tunec.targets.launch.lines import at_line, lines

_REMOTE: Final = re.compile(
    r"\b(?:srun|mpirun|mpiexec|pdsh|ssh|clush|parallel|ray|orterun)\b"
    r"|(?:^|[\s;&|(])(?:bash|sh)\s+[\"']?[\w$./{}-]*\.sh\b"
)
"""What starts a command on other nodes, or a script that may do so."""


@rule("error", "silent", consumers=("slurm",), reads=("slurm:nodes",))
def nodes_without_srun(run: LintContext) -> Iterator[Finding]:
    """The script of a job with several nodes starts its command only on the first one."""
    for document in launches(run, "torchrun", "accelerate", "python"):
        batch = batch_of(run, document)
        nodes = batch.get("nodes") if batch is not None else None
        if nodes is None or (count(nodes) or 0) < 2 or _starts_on_others(document.text):
            continue
        launcher, own = document.get("launcher"), count(document.get("nodes")) or 1
        yield Finding(
            f"{nodes.value} nodes, and the command runs on the first only",
            (
                *([launcher.label("on the first node")] if launcher else []),
                nodes.label(f"{nodes.value} nodes", primary=False),
            ),
            (
                "a batch script runs on the first node of its job; srun starts a command on all",
                *(
                    ("the first node waits for the others",)
                    if own > 1
                    else ("the other nodes stay idle",)
                ),
            ),
            "write srun before it",
            consequence="hang" if own > 1 else None,
        )


@cached(1)
def _starts_on_others(text: str) -> bool:
    """Whether a line of a script starts something on other nodes; cached for its commands."""
    return any(_REMOTE.search(line) for line in text.split("\n") if line.lstrip()[:1] != "#")


_LAUNCHERS: Final = ("torchrun", "accelerate", "deepspeed")
_HOSTS: Final = ("flags.H", "flags.host", "flags.hosts")
_OF_HOSTS: Final = ("hostfile", "flags.map_by")
_VARIABLE: Final = re.compile(
    r"--nproc[-_]per[-_]node[= ]\"?\$\{?(SLURM_(?:NTASKS_PER_NODE|GPUS_PER_NODE|GPUS_ON_NODE))\b"
)
_PROCESSES_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "SLURM_NTASKS_PER_NODE": ("ntasks_per_node",),
    "SLURM_GPUS_PER_NODE": ("gpus_per_node",),
    "SLURM_GPUS_ON_NODE": ("gpus_per_node", "gres"),
}
"""Slurm 24.05 sbatch manual page, output environment variables: the options that set each."""
_ONE_A_NODE: Final = {"srun": "--ntasks-per-node 1", "mpirun": "-npernode 1"}


@rule("error", "hang", consumers=("torch", "accelerate", "deepspeed"), reads=("launch:launcher",))
def processes_started_twice(run: LintContext) -> Iterator[Finding]:
    """Slurm or MPI starts a launcher for each device, and each starts as many processes."""
    yield from _within(run)
    pairs = StartedCommands((), launches(run, *_LAUNCHERS))
    for document in launches(run, *STARTERS):
        inner = pairs.inner(document)
        started = (per_node(inner) or _by_variable(run, inner)) if inner else None
        tasks = _processes_tasks(run, document, inner)
        if tasks is None or started is None or tasks[0] < 2 or started[0] < 2:
            continue
        yield _processes_finding(str(document.value("launcher")), tasks, started)


def _by_variable(run: LintContext, inner: Document) -> tuple[int, Place] | None:
    """The processes by a variable that Slurm sets from the batch script's own options."""
    batch, said, at = batch_of(run, inner), _VARIABLE.search(inner.text), inner.get("launcher")
    if batch is None or said is None or at is None:
        return None
    number = next(
        (each for key in _PROCESSES_OPTIONS[said[1]] if (each := count(batch.get(key)))), None
    )
    return None if number is None else (number, at)


def _processes_finding(
    starter: str, tasks: tuple[int, Place], started: tuple[int, Place]
) -> Finding:
    every = tasks[0] * started[0]
    return Finding(
        f"{starter} starts {tasks[0]} tasks on a node, and each starts {started[0]} processes",
        (
            tasks[1].label(f"{tasks[0]} launchers"),
            started[1].label(f"{started[0]} processes each", primary=False),
        ),
        (
            (
                f"{tasks[0]} x {started[0]} = {every} processes on a node, and the launchers wait "
                "for each other's port"
            ),
        ),
        f"use {_ONE_A_NODE[starter]} with the launcher, or {starter} without it",
    )


def _within(run: LintContext) -> Iterator[Finding]:
    """The script of a launcher is itself a launcher."""
    for document in launches(run, *_LAUNCHERS):
        script, number = document.get("script"), per_node(document)
        words = script.value if script is not None and isinstance(script.value, list) else []
        if script is None or not words or str(words[0]) not in _LAUNCHERS:
            continue
        times = f"{number[0]} times on a node" if number else "once for each device"
        yield Finding(
            f"{document.value('launcher')} starts {words[0]} {times}",
            (script.label("a launcher by itself"),),
            ("each starts its processes, and all claim the same port and devices",)
            if document.get("flags.no_python")
            else (f"python says: can't open file '{words[0]}'",),
            f"leave one of them out: {document.value('launcher')} starts the script itself",
            consequence=None if document.get("flags.no_python") else "parse",
        )


def _processes_tasks(
    run: LintContext, document: Document, inner: Document | None
) -> tuple[int, Place] | None:
    """The tasks on a node, by the starter's own flags, else by the batch script."""
    if document.value("launcher") == "mpirun":
        return _of_mpi(document, inner)
    own = per_node(document)
    if own is not None or document.get("processes") is not None:
        return own
    batch = batch_of(run, document)
    if batch is None:
        return None
    place = batch.get("ntasks_per_node")
    number = count(place)
    if place is not None:
        return (number, place) if number else None
    place, nodes = batch.get("ntasks"), count(batch.get("nodes")) or 1
    number = count(place)
    return (number // nodes, place) if number and place else None


def _of_mpi(document: Document, inner: Document | None) -> tuple[int, Place] | None:
    """Copies on a node: `-npernode`, or all, divided by the hosts that are named."""
    place = document.get("per_node")
    number = count(place)
    if place is not None:
        return (number, place) if number else None
    place = document.get("processes")
    number, nodes = count(place), _nodes(document, inner)
    return (number // nodes, place) if number and place and nodes else None


def _nodes(document: Document, inner: Document | None) -> int | None:
    """The nodes of the run; None if an unread file sets them."""
    hosts = next((each for key in _HOSTS if (each := document.value(key))), None)
    if isinstance(hosts, str):
        return len(hosts.split(","))
    said = count(inner.get("nodes")) if inner is not None else None
    if said is not None:
        return said
    return None if any(document.get(key) for key in _OF_HOSTS) else 1


_USED: Final = re.compile(r"\$(?:\{(SLURM_\w+)\}|(SLURM_\w+))")
_FLAG: Final = re.compile(r"--([\w-]+)[= ]\"?\Z")
_IDLE: Final = re.compile(r"\s*(?:#|(?:echo|printf|if|elif|while|test|\[\[?)(?:\s|\Z))")
"""Lines that only print or test a variable."""
_SLURM_OPTIONS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "SLURM_GPUS_PER_NODE": (("gpus_per_node",), ("gres", "gpus", "gpus_per_task")),
    "SLURM_GPUS": (("gpus",), ("gres", "gpus_per_node", "gpus_per_task")),
    "SLURM_GPUS_PER_TASK": (("gpus_per_task",), ("gres", "gpus", "gpus_per_node")),
    "SLURM_NTASKS_PER_NODE": (("ntasks_per_node",), ("ntasks",)),
}
"""For each variable the options that set it, and those that request the same in another way."""


@rule("error", "init", consumers=("slurm",), reads=("slurm:*",))
def slurm_variable_unset(run: LintContext) -> Iterator[Finding]:
    """A script reads a variable of Slurm whose option is not given."""
    for document in run.of("launch"):
        batch = batch_of(run, document)
        if batch is None or document is not _first(run, document):
            continue
        for number, line in lines(document):
            if not _IDLE.match(line):
                yield from _of_line(document, batch, number, line)


def _first(run: LintContext, document: Document) -> Document:
    return next(each for each in run.of("launch") if each.name == document.name)


def _of_line(document: Document, batch: Document, number: int, line: str) -> Iterator[Finding]:
    for found in _USED.finditer(line):
        name = found[1] or found[2]
        given, otherwise = _SLURM_OPTIONS.get(name, ((), ()))
        instead = next((key for key in otherwise if batch.get(key)), None)
        is_given = not given or any(batch.get(key) for key in given) or f"{name}=" in document.text
        if is_given or instead is None or _is_of_a_step(document.text, line, found.start()):
            continue
        option = given[0].replace("_", "-")
        yield Finding(
            f"{name} is not set: the job requests its GPUs by --{instead.replace('_', '-')}",
            (_label(document, number, line, found),),
            (f"Slurm sets it where --{option} is given",),
            f"write #SBATCH --{option}=..., or the number itself",
        )


def _label(document: Document, number: int, line: str, found: re.Match[str]) -> Label:
    """A label at the variable, with the path of the flag that uses it."""
    label = at_line(document, number, found.start(), len(found[0]), "empty")
    flag = _FLAG.search(line[: found.start()])
    return label if flag is None else replace(label, path=f"flags.{flag[1].replace('-', '_')}")


def _is_of_a_step(text: str, line: str, at: int) -> bool:
    """Whether srun has the option itself, or single quotes defer the variable."""
    is_quoted = line.count("'", 0, at) % 2 == 1
    return is_quoted or re.search(r"\bsrun\b[^\n]*--(gpus|ntasks)", text) is not None


_TASKS: Final = ("ntasks_per_node", "ntasks")
_RANKS: Final = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
_TOLD: Final = ("SLURM_PROCID", "SLURM_LOCALID", "RANK=", "init_distributed", "PMI_")
"""Words of a script that assigns ranks in another way."""
_RANKED: Final = re.compile(
    r"SLURM_(?:PROCID|LOCALID)|OMPI_COMM_WORLD_\w*RANK|\b(?:PMI|MV2_COMM_WORLD)_\w*RANK|"
    r"\bCOMM_WORLD\b|\bidr_torch\b|\binit_distributed\("
)
"""How a program asks Slurm or MPI for its number itself."""


@rule("error", "silent", consumers=("accelerate", "transformers"), reads=("launch:launcher",))
def tasks_train_apart(run: LintContext) -> Iterator[Finding]:
    """Slurm or MPI starts several tasks that do not know of each other."""
    pairs = StartedCommands(launches(run, *STARTERS), ())
    for document in launches(run, "python"):
        trainers = [each for each in run.of("trainer") if each.name == document.name]
        starter = pairs.starter(document)
        place = document.get("launcher")
        tasks = _tasks_apart(run, starter) if starter is not None else None
        if starter is None or not trainers or tasks is None or place is None:
            continue
        is_mpi = starter.value("launcher") == "mpirun"
        if is_mpi and (run.of("deepspeed") or _meet_by_mpi(trainers)):
            continue
        if any(variable(document, name) for name in _RANKS) or _is_told(document):
            continue
        if run.own.shows_in(run.started.get(document.name, ()), _RANKED):
            continue
        yield Finding(
            f"{tasks.value} tasks run the script, each as a separate run",
            (place.label("has no RANK"), tasks.label("", primary=False)),
            (
                (
                    "the Trainer takes its number from RANK and LOCAL_RANK, which "
                    f"{starter.value('launcher')} does not set"
                ),
                "each task trains on all samples, and writes to the same directory",
            ),
            "start the processes of a node by torchrun --nproc_per_node"
            if is_mpi
            else "start one task a node, and torchrun in it: "
            "srun --ntasks-per-node=1 torchrun --nproc_per_node ...",
        )


def _meet_by_mpi(trainers: list[Document]) -> bool:
    """Whether processes of MPI can find each other: on the CPU, or by DeepSpeed."""
    keys = ("use_cpu", "no_cuda", "use_ipex", "ddp_backend", "deepspeed")
    return any(each.value(key) for each in trainers for key in keys)


def _tasks_apart(run: LintContext, document: Document) -> Place | None:
    """The place that requests several tasks."""
    if document.value("launcher") == "mpirun":
        counts = (document.get(key) for key in ("processes", "per_node"))
        return next((each for each in counts if (count(each) or 1) > 1), None)
    batch = batch_of(run, document)
    found = (batch.get(key) for key in _TASKS) if batch is not None else ()
    return next((each for each in found if (count(each) or 1) > 1), None)


def _is_told(document: Document) -> bool:
    return any(word in document.text for word in _TOLD)
