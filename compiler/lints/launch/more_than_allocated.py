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
        started, given = per_node(document) or _of_file(run, document), given_to(batch)
        if started is not None and given is not None and started[0] > given[0]:
            yield _devices(*started, *given)
        nodes, allocated = document.get("nodes"), batch.get("nodes")
        wanted, have = count(nodes), count(allocated)
        if nodes and allocated and wanted and have and wanted > have:
            yield _nodes(nodes, allocated)


def _of_file(run: Run, document: Document) -> tuple[int, Place] | None:
    """Processes of a node by accelerate's file, where its command says no number."""
    files = run.of("accelerate") if document.value("launcher") == "accelerate" else ()
    said = ("processes", "flags.num_processes", "nodes", "flags.num_machines")
    if len(files) != 1 or any(document.get(key) or is_unknown(document, key) for key in said):
        return None
    place = files[0].get("num_processes")
    number, nodes = count(place), count(files[0].get("num_machines")) or 1
    return (number // nodes, place) if number and place and number % nodes == 0 else None


def given_to(batch: Document) -> tuple[int, Place] | None:
    """Devices of a node."""
    for key in ("gpus_per_node", "gres"):
        place = batch.get(key)
        found = _DEVICES.fullmatch(str(place.value)) if place else None
        if place is not None and found is not None and (key != "gres" or "gpu" in str(place.value)):
            return int(found[1]), place
    return None


def _devices(number: int, place: Place, have: int, given: Place) -> Finding:
    return Finding(
        f"{number} processes on a node, and Slurm gives {have} devices",
        (place.label(f"{number} processes"), given.label(f"{have} devices", primary=False)),
        ("process n takes device n of the job: `invalid device ordinal`",),
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
            "Slurm 24.05 sbatch manual page: --gres, --gpus-per-node, --nodes; gres.conf manual "
            "page: "
            "CUDA_VISIBLE_DEVICES is set to the devices of the job"
        ),
        "torch 2.13.0 distributed/run.py: --nnodes, --nproc_per_node",
    ),
    check=_check,
)
