"""Slurm starts a launcher on every node, and each is told that it is the same node."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tunec.compiler.frontend.shell_launch import STARTERS
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.lines import at_offset, scripts
from tunec.compiler.lints.launch.scripts import (
    batch_of,
    count,
    launches,
    numbers_nodes_itself,
)
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_RANK: Final = re.compile(r"--(node|machine)[_-]rank[ =]\"?\$\{?(?:SLURM_NODEID|SLURM_PROCID)\b\}?")
_SHELL: Final = re.compile(r"(?:ba|z|\b)sh\b.*\s-l?c\s+(.)")
"""A shell within the command, and the quote of what it is to run."""
_KEYS: Final = ("flags.node_rank", "flags.machine_rank")
_RANK_OF_TASK: Final = "inside srun bash -c '... --node_rank $SLURM_NODEID ...'"


def _check(run: Run) -> Iterator[Finding]:
    starters = {each.name: each.value("launcher") for each in launches(run, *STARTERS)}
    for document in launches(run, "torchrun", "accelerate"):
        if document.name not in starters or not _has_several_nodes(run, document):
            continue
        if numbers_nodes_itself(document):
            continue
        nodes = document.get("nodes")
        if nodes is not None and _is_left_out(document):
            yield _without(nodes, starters[document.name])
        for rank in _ranks(run, document):
            if rank is not None and type(rank.value) is int:
                yield Finding(
                    f"{starters[document.name]} starts this on every node, and each is node "
                    f"{rank.value}",
                    (rank.label("the same on all nodes"),),
                    _NOTES,
                    _help(starters[document.name]),
                )
    for document in scripts(run):
        yield from _too_early(run, document)


_NOTES: Final = ("each waits for the others, of whom none has another number",)


def _is_left_out(document: Document) -> bool:
    """Whether torchrun's own 0 holds: accelerate takes it from a file that may be elsewhere."""
    is_open = document.unknown & {"flags", "flags.node_rank", "flags.rdzv_backend"}
    is_torchrun = document.value("launcher") == "torchrun"
    is_set = document.get("environment.PET_NODE_RANK") or document.get("flags.standalone")
    meets = document.get("flags.master_addr") or document.get("flags.rdzv_endpoint")
    said = document.get("flags.node_rank")
    return bool(is_torchrun and not is_open and meets and said is None and not is_set)


def _help(starter: str) -> str:
    told = f", or take the number {_RANK_OF_TASK}" if starter == "srun" else ""
    return f"use --rdzv_backend c10d{told}"


def _without(nodes: Place, starter: str) -> Finding:
    return Finding(
        f"{starter} starts this on every node, and each is node 0",
        (nodes.label("no --node_rank"),),
        ("--node_rank is 0 where it is left out", *_NOTES),
        _help(starter),
    )


def _ranks(run: Run, document: Document) -> Iterator[Place | None]:
    """Where the number of the node stands: in a flag, else in the file of accelerate."""
    yield from (document.get(key) for key in _KEYS)
    if document.value("launcher") == "accelerate" and not any(map(document.get, _KEYS)):
        yield from run.each("accelerate", "machine_rank")


def _has_several_nodes(run: Run, document: Document) -> bool:
    batch = batch_of(run, document)
    nodes = (document.get("nodes"), batch.get("nodes") if batch else None)
    return any((count(each) or 0) > 1 for each in nodes)


def _too_early(run: Run, document: Document) -> Iterator[Finding]:
    """`srun torchrun --node_rank $SLURM_NODEID`: the batch script itself is on node 0."""
    for found in _RANK.finditer(document.text):
        command = _command_around(document.text, found.start())
        if (
            "c10d" not in command
            and re.search(r"\bsrun\b", command)
            and not _may_be_put_in_later(run, document, command)
        ):
            yield Finding(
                "the number of the node is put in before srun starts: it is that of the first node",
                (
                    replace(
                        at_offset(document, found.start(), len(found[0]), "0 on all nodes"),
                        path=f"flags.{found[1]}_rank",
                    ),
                ),
                _NOTES,
                f"use --rdzv_backend c10d, or take the number {_RANK_OF_TASK}",
            )


def _may_be_put_in_later(run: Run, document: Document, command: str) -> bool:
    """Whether the shell of each task puts it in: single quotes keep it for that, double do not."""
    inner = _SHELL.search(command)
    if inner is None or inner[1] != '"':
        return inner is not None
    batch = batch_of(run, document)
    nodes = count(batch.get("nodes")) if batch is not None else None
    return (nodes or 1) < 2 or "c10d" in document.text  # a variable may hold what is left out


def _command_around(text: str, at: int) -> str:
    """The lines around a place that backslashes join to its own."""
    lines, first = text.split("\n"), text[:at].count("\n")
    last = first
    while first and lines[first - 1].endswith("\\"):
        first -= 1
    while last + 1 < len(lines) and lines[last].endswith("\\"):
        last += 1
    return " ".join(line.removesuffix("\\") for line in lines[first : last + 1])


RULE = Rule(
    name="one-rank-for-every-node",
    severity="error",
    consequence="hang",
    consumers=("torch", "accelerate"),
    sources=(
        "torch 2.13.0 distributed/run.py: --node_rank, for the static rendezvous",
        "pytorch/pytorch#73656: a variable of Slurm that is expanded too early",
        (
            "Slurm 24.05 srun manual page: the command is started for each task with the same "
            "arguments; OUTPUT ENVIRONMENT VARIABLES: SLURM_NODEID, SLURM_PROCID of the task"
        ),
        "Open MPI 5.0 mpirun manual page: copies of one command, of one set of arguments",
    ),
    check=_check,
)
