"""A launcher starts more processes or nodes than Slurm gives the job."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.scripts import batch_of, count, is_unknown, launches, per_node
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_DEVICES: Final = re.compile(r"(?:(?:gres/)?gpu:)?(?:[A-Za-z][\w.-]*:)?(\d{1,6})(?:\(.*\))?")


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run, "torchrun", "accelerate", "deepspeed"):
        batch = batch_of(run, document)
        if batch is None:
            continue
        started, given = per_node(document) or of_file(run, document), _given(run, batch)
        if started is not None and given is not None and started[0] > given[0]:
            yield _devices(*started, *given)
        nodes, allocated = document.get("nodes"), batch.get("nodes")
        wanted, have = count(nodes), count(allocated)
        if nodes and allocated and wanted and have and wanted > have:
            yield _nodes(nodes, allocated)


def of_file(run: Run, document: Document) -> tuple[int, Place] | None:
    """Processes of a node by accelerate's file, where its command says no number."""
    files = run.of("accelerate") if document.value("launcher") == "accelerate" else ()
    said = ("processes", "flags.num_processes", "nodes", "flags.num_machines")
    if len(files) != 1 or any(document.get(key) or is_unknown(document, key) for key in said):
        return None
    place = files[0].get("num_processes")
    number, nodes = count(place), count(files[0].get("num_machines")) or 1
    return (number // nodes, place) if number and place and number % nodes == 0 else None


def _given(run: Run, batch: Document) -> tuple[int, Place] | None:
    """Devices of a node in the step that srun starts, else in the job."""
    steps = [each for each in launches(run, "srun") if each.name == batch.name]
    for place in (each.get(f"flags.{key}") for each in steps for key in ("gpus_per_node", "gres")):
        found = _DEVICES.fullmatch(str(place.value)) if place is not None else None
        if place is not None and found is not None and len(steps) == 1:
            return int(found[1]), place
    return given_to(batch)


def given_to(batch: Document) -> tuple[int, Place] | None:
    """Devices of a node."""
    for key in ("gpus_per_node", "gres"):
        place = batch.get(key)
        found = _DEVICES.fullmatch(str(place.value)) if place else None
        if place is not None and found is not None and (key != "gres" or "gpu" in str(place.value)):
            return int(found[1]), place
    return _of_job(batch) or _of_task(batch)


def _of_job(batch: Document) -> tuple[int, Place] | None:
    """`--gpus`: devices of the whole job."""
    place, nodes = batch.get("gpus"), count(batch.get("nodes"))
    found = _DEVICES.fullmatch(str(place.value)) if place else None
    if place is None or found is None or nodes is None or int(found[1]) % nodes:
        return None
    return int(found[1]) // nodes, place


def _of_task(batch: Document) -> tuple[int, Place] | None:
    """`--gpus-per-task`: what the one task of a node sees."""
    place, tasks = batch.get("gpus_per_task"), batch.get("ntasks_per_node")
    found = _DEVICES.fullmatch(str(place.value)) if place else None
    if place is None or found is None or tasks is None or count(tasks) != 1:
        return None
    return int(found[1]), place


def _devices(number: int, place: Place, have: int, given: Place) -> Finding:
    return Finding(
        f"{number} processes on a node, and Slurm gives {have} devices",
        (place.label(f"{number} processes"), given.label(f"{have} devices", primary=False)),
        ("process n takes device n of the job: none is there, or it is taken",),
        f"ask for {number} devices, or start {have} processes",
    )


def _nodes(nodes: Place, allocated: Place) -> Finding:
    return Finding(
        f"{nodes.value} nodes are waited for, and Slurm gives {allocated.value}",
        (nodes.label("waits for all"), allocated.label("nodes of the job", primary=False)),
        ("the rendezvous waits for nodes that never come",),
        "say the same number",
        consequence="hang",
    )


RULE = Rule(
    name="more-than-allocated",
    severity="error",
    consequence="init",
    consumers=("torch", "accelerate", "deepspeed"),
    sources=(
        (
            "Slurm 24.05 sbatch manual page: --gres, --gpus-per-node, --gpus, --gpus-per-task, "
            "--nodes; gres.conf manual page: CUDA_VISIBLE_DEVICES is set to the devices of the job"
        ),
        "torch 2.13.0 distributed/run.py: --nnodes, --nproc_per_node",
    ),
    check=_check,
)
