"""A job of several nodes whose script starts its command on the first one only."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.launch.scripts import batch_of, count, launches
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_REMOTE: Final = re.compile(r"\b(srun|mpirun|mpiexec|pdsh|ssh|clush|parallel|ray|orterun)\b")


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run, "torchrun", "accelerate", "python"):
        batch = batch_of(run, document)
        nodes = batch.get("nodes") if batch is not None else None
        if nodes is None or (count(nodes) or 0) < 2 or _REMOTE.search(_commands(document.text)):
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


def _commands(text: str) -> str:
    """The lines that are no comments."""
    return "\n".join(line for line in text.split("\n") if not line.lstrip().startswith("#"))


RULE = Rule(
    name="nodes-without-srun",
    severity="error",
    consequence="silent",
    consumers=("slurm",),
    sources=(
        (
            "Slurm 24.05 sbatch manual page, DESCRIPTION: when the job allocation is granted, "
            "Slurm "
            "runs a single copy of the batch script on the first node in the set of allocated nodes"
        ),
    ),
    check=_check,
)
