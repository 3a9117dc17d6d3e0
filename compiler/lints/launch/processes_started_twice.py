"""Slurm starts a launcher once for each device, and the launcher a process for each again."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.scripts import batch_of, count, launches, per_node
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    yield from _within(run)
    for document in launches(run, "srun"):
        tasks = _tasks(run, document)
        inner = next(
            (
                each
                for each in launches(run, "torchrun", "accelerate", "deepspeed")
                if each.name == document.name
            ),
            None,
        )
        started = per_node(inner) if inner else None
        if tasks is None or inner is None or started is None or tasks[0] < 2 or started[0] < 2:
            continue
        yield Finding(
            f"srun starts {tasks[0]} tasks on a node, and each starts {started[0]} processes",
            (
                tasks[1].label(f"{tasks[0]} launchers"),
                started[1].label(f"{started[0]} processes each", primary=False),
            ),
            (
                (
                    f"{tasks[0]} x {started[0]} = {tasks[0] * started[0]} processes on a node, and "
                    f"the "
                    "launchers wait for each other's port"
                ),
            ),
            "use --ntasks-per-node 1 with the launcher, or srun without it",
        )


def _within(run: Run) -> Iterator[Finding]:
    """A launcher whose script is a launcher, once for each process."""
    for document in launches(run, "torchrun", "accelerate", "deepspeed"):
        script, number = document.get("script"), per_node(document)
        words = script.value if script is not None and isinstance(script.value, list) else []
        if script is None or not words or str(words[0]) not in _LAUNCHERS:
            continue
        times = f"{number[0]} times on a node" if number else "once for each device"
        yield Finding(
            f"{document.value('launcher')} starts {words[0]} {times}",
            (script.label("a launcher by itself"),),
            ("each starts its processes, and all want the same port and devices",),
            f"leave one of them out: {document.value('launcher')} starts the script itself",
        )


_LAUNCHERS: Final = ("torchrun", "accelerate", "deepspeed")


def _tasks(run: Run, document: Document) -> tuple[int, Place] | None:
    """Tasks on a node, by srun's own flags or else by the batch script's."""
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


RULE = Rule(
    name="processes-started-twice",
    severity="error",
    consequence="hang",
    consumers=("torch", "accelerate", "deepspeed"),
    sources=(
        "Slurm 24.05 srun manual page: --ntasks-per-node, SLURM_NTASKS_PER_NODE from sbatch",
        "torch 2.13.0 distributed/run.py: one agent a node, which starts nproc_per_node workers",
    ),
    check=_check,
)
