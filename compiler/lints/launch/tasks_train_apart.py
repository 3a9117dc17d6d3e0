"""Slurm or MPI starts several tasks that do not know of each other."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.frontend.shell_launch import STARTERS
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.scripts import batch_of, count, launches, may_start, variable
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_TASKS: Final = ("ntasks_per_node", "ntasks")
_RANKS: Final = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
_TOLD: Final = ("SLURM_PROCID", "SLURM_LOCALID", "RANK=", "init_distributed", "PMI_")
"""Words of a script that tells the processes their numbers in another way."""


def _check(run: Run) -> Iterator[Finding]:
    starters = tuple(launches(run, *STARTERS))
    for document in launches(run, "python"):
        trainers = [each for each in run.of("trainer") if each.name == document.name]
        starter = next((each for each in starters if may_start(each, document)), None)
        place = document.get("launcher")
        tasks = _tasks(run, starter) if starter is not None else None
        if starter is None or not trainers or tasks is None or place is None:
            continue
        is_mpi = starter.value("launcher") == "mpirun"
        if is_mpi and (run.of("deepspeed") or _meet_by_mpi(trainers)):
            continue
        if any(variable(document, name) for name in _RANKS) or _is_told(document):
            continue
        yield Finding(
            f"{tasks.value} tasks run the script, each as a run of its own",
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
    """Whether processes of MPI may find each other: on the CPU, or by DeepSpeed's engine."""
    keys = ("use_cpu", "no_cuda", "use_ipex", "ddp_backend", "deepspeed")
    return any(each.value(key) for each in trainers for key in keys)


def _tasks(run: Run, document: Document) -> Place | None:
    """Where several tasks are asked for."""
    if document.value("launcher") == "mpirun":
        counts = (document.get(key) for key in ("processes", "per_node"))
        return next((each for each in counts if (count(each) or 1) > 1), None)
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
