"""Slurm gives devices for which no process is started."""

from collections.abc import Iterator

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.more_than_allocated import given_to
from tunec.compiler.lints.launch.scripts import batch_of, count, is_unknown, launches, variable
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    by_slurm = {each.name: each for each in launches(run, "srun")}
    for document in launches(run, "torchrun"):
        batch = batch_of(run, document)
        given = given_to(batch) if batch is not None else None
        said, launcher = document.get("per_node"), document.get("launcher")
        if batch is None and said is None:
            yield from _of_hardware(run, document)
        if given is None or is_unknown(document, "per_node") or launcher is None:
            continue
        started = 1 if said is None else count(said)
        tasks = count(batch.get("ntasks_per_node")) if batch is not None else None
        several = tasks is not None and tasks > 1 and document.name in by_slurm
        if started is None or several or started >= given[0] or document.unknown & {"flags"}:
            continue
        yield Finding(
            f"{given[0]} devices on a node, and torchrun starts {started} process"
            + ("" if started == 1 else "es"),
            (
                (said or launcher).label(f"{started} of {given[0]}"),
                given[1].label("", primary=False),
            ),
            ("a process uses one device", "--nproc_per_node is 1 where it is left out"),
            f"write --nproc_per_node {given[0]}, or ask for {started}",
        )


def _of_hardware(run: Run, document: Document) -> Iterator[Finding]:
    """A number of processes that is left out, on a machine with several devices."""
    cluster, launcher = run.environment.cluster, document.get("launcher")
    have = min(node.device_count for node in cluster.nodes) if cluster else 1
    apart = variable(document, "CUDA_VISIBLE_DEVICES") or run.environment.world
    unknown = is_unknown(document, "per_node") or document.unknown & {"flags"}
    if have > 1 and launcher is not None and not apart and not unknown and cluster is not None:
        yield Finding(
            f"{have} devices on a node of {cluster.name}, and torchrun starts 1 process",
            (launcher.label(f"1 of {have}"),),
            ("a process uses one device", "--nproc_per_node is 1 where it is left out"),
            f"write --nproc_per_node {have}",
        )


RULE = Rule(
    name="devices-left-idle",
    severity="warning",
    consequence="slow",
    consumers=("torch",),
    sources=("torch 2.13.0 distributed/run.py: --nproc_per_node is 1 by default",),
    check=_check,
)
