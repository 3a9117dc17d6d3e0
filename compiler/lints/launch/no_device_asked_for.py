"""A job that trains on several devices and asks Slurm for none."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.scripts import batch_of, launches, per_node
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_ASKING: Final = (
    *("gres", "gpus", "gpus_per_node", "gpus_per_task", "gpus_per_socket", "tres_per_node"),
    *("tres_per_task", "exclusive"),
)


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run, "torchrun", "accelerate", "deepspeed"):
        batch, started = batch_of(run, document), per_node(document)
        if batch is None or started is None or started[0] < 2:
            continue
        if any(batch.get(key) for key in _ASKING) or _asks(run, document.name):
            continue
        if document.get("flags.cpu") or document.value("flags.use_cpu"):
            continue
        yield _finding(batch, *started)


def _asks(run: Run, name: str) -> bool:
    """Whether a step asks for itself."""
    steps = (each for each in launches(run, "srun") if each.name == name)
    return any(each.get(f"flags.{key}") for each in steps for key in _ASKING)


def _finding(batch: Document, number: int, place: Place) -> Finding:
    first = next(iter(batch.found.values()))
    return Finding(
        f"{number} processes on a node, and no device is asked for",
        (place.label(f"{number} processes"), first.key_label("asks for none", primary=False)),
        ("a job sees the devices that it asks for; some partitions give some unasked",),
        f"add #SBATCH --gres=gpu:{number}",
    )


RULE = Rule(
    name="no-device-asked-for",
    severity="warning",
    consequence="init",
    consumers=("slurm",),
    sources=(
        (
            "Slurm 24.05 gres.conf and sbatch manual pages: a job is given no generic resources "
            "unless it requests them with --gres or --gpus"
        ),
    ),
    check=_check,
)
