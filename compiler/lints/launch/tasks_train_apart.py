"""Slurm starts several tasks that do not know of each other."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.scripts import batch_of, count, launches, variable
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_TASKS: Final = ("ntasks_per_node", "ntasks")
_RANKS: Final = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
_TOLD: Final = ("SLURM_PROCID", "SLURM_LOCALID", "RANK=", "init_distributed", "mpirun")
"""Words of a script that tells the processes their numbers in another way."""


def _check(run: Run) -> Iterator[Finding]:
    by_slurm = {each.name for each in launches(run, "srun")}
    for document in launches(run, "python"):
        trainers = [each for each in run.of("trainer") if each.name == document.name]
        tasks, place = _tasks(run, document), document.get("launcher")
        if document.name not in by_slurm or not trainers or tasks is None or place is None:
            continue
        if any(variable(document, name) for name in _RANKS) or _is_told(document):
            continue
        yield Finding(
            f"{tasks.value} tasks run the script, each as a run of its own",
            (place.label("has no RANK"), tasks.label("", primary=False)),
            (
                "the Trainer takes its number from RANK and LOCAL_RANK, which srun does not set",
                "each task trains on all samples, and writes to the same directory",
            ),
            "start one task a node, and torchrun in it: "
            "srun --ntasks-per-node=1 torchrun --nproc_per_node ...",
        )


def _tasks(run: Run, document: Document) -> Place | None:
    """Where Slurm is asked for several tasks."""
    batch = batch_of(run, document)
    found = (batch.get(key) for key in _TASKS) if batch is not None else ()
    return next((each for each in found if (count(each) or 1) > 1), None)


def _is_told(document: Document) -> bool:
    return any(word in document.text for word in _TOLD)


RULE = Rule(
    name="tasks-train-apart",
    severity="error",
    consequence="silent",
    consumers=("accelerate", "transformers"),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 state.py `PartialState`: distributed where LOCAL_RANK is "
            "set (or, on the CPU, the variables of an MPI)"
        ),
        "Slurm 24.05 srun manual page, output environment variables: SLURM_PROCID, SLURM_LOCALID",
    ),
    check=_check,
)
