"""Slurm or MPI starts a launcher for each device, and the launcher a process for each again."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.frontend.shell_launch import STARTERS
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.scripts import batch_of, count, launches, may_start, per_node
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_LAUNCHERS: Final = ("torchrun", "accelerate", "deepspeed")
_HOSTS: Final = ("flags.H", "flags.host", "flags.hosts")
_OF_HOSTS: Final = ("hostfile", "flags.map_by")
_VARIABLE: Final = re.compile(
    r"--nproc[-_]per[-_]node[= ]\"?\$\{?(SLURM_(?:NTASKS_PER_NODE|GPUS_PER_NODE|GPUS_ON_NODE))\b"
)
_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "SLURM_NTASKS_PER_NODE": ("ntasks_per_node",),
    "SLURM_GPUS_PER_NODE": ("gpus_per_node",),
    "SLURM_GPUS_ON_NODE": ("gpus_per_node", "gres"),
}
"""Slurm 24.05 sbatch manual page, output environment variables: the options that set each."""
_ONE_A_NODE: Final = {"srun": "--ntasks-per-node 1", "mpirun": "-npernode 1"}


def _check(run: Run) -> Iterator[Finding]:
    yield from _within(run)
    for document in launches(run, *STARTERS):
        inner = next(
            (each for each in launches(run, *_LAUNCHERS) if may_start(document, each)), None
        )
        started = (per_node(inner) or _by_variable(run, inner)) if inner else None
        tasks = _tasks(run, document, inner)
        if tasks is None or started is None or tasks[0] < 2 or started[0] < 2:
            continue
        yield _finding(str(document.value("launcher")), tasks, started)


def _by_variable(run: Run, inner: Document) -> tuple[int, Place] | None:
    """Processes by a variable that Slurm sets from the batch script's own options."""
    batch, said, at = batch_of(run, inner), _VARIABLE.search(inner.text), inner.get("launcher")
    if batch is None or said is None or at is None:
        return None
    number = next((each for key in _OPTIONS[said[1]] if (each := count(batch.get(key)))), None)
    return None if number is None else (number, at)


def _finding(starter: str, tasks: tuple[int, Place], started: tuple[int, Place]) -> Finding:
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


def _within(run: Run) -> Iterator[Finding]:
    """A launcher whose script is a launcher, once for each process."""
    for document in launches(run, *_LAUNCHERS):
        script, number = document.get("script"), per_node(document)
        words = script.value if script is not None and isinstance(script.value, list) else []
        if script is None or not words or str(words[0]) not in _LAUNCHERS:
            continue
        times = f"{number[0]} times on a node" if number else "once for each device"
        yield Finding(
            f"{document.value('launcher')} starts {words[0]} {times}",
            (script.label("a launcher by itself"),),
            ("each starts its processes, and all want the same port and devices",)
            if document.get("flags.no_python")
            else (f"python says: can't open file '{words[0]}'",),
            f"leave one of them out: {document.value('launcher')} starts the script itself",
            consequence=None if document.get("flags.no_python") else "parse",
        )


def _tasks(run: Run, document: Document, inner: Document | None) -> tuple[int, Place] | None:
    """Tasks on a node, by the starter's own flags or else by the batch script's."""
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
    """Copies on a node: `-npernode`, or all over the hosts that it or the launcher names."""
    place = document.get("per_node")
    number = count(place)
    if place is not None:
        return (number, place) if number else None
    place = document.get("processes")
    number, nodes = count(place), _nodes(document, inner)
    return (number // nodes, place) if number and place and nodes else None


def _nodes(document: Document, inner: Document | None) -> int | None:
    """Nodes of the run; None where a file says it that was not read."""
    hosts = next((each for key in _HOSTS if (each := document.value(key))), None)
    if isinstance(hosts, str):
        return len(hosts.split(","))
    said = count(inner.get("nodes")) if inner is not None else None
    if said is not None:
        return said
    return None if any(document.get(key) for key in _OF_HOSTS) else 1


RULE = Rule(
    name="processes-started-twice",
    severity="error",
    consequence="hang",
    consumers=("torch", "accelerate", "deepspeed"),
    sources=(
        "Slurm 24.05 srun manual page: --ntasks-per-node, SLURM_NTASKS_PER_NODE from sbatch",
        "Open MPI 5.0 mpirun manual page: -np copies of the program, -npernode on each node",
        "torch 2.13.0 distributed/run.py: one agent a node, which starts nproc_per_node workers",
    ),
    check=_check,
)
