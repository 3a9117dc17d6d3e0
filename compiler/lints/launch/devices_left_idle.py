"""Slurm gives devices for which no process is started."""

from collections.abc import Iterator

from tunec.compiler.lints.launch.more_than_allocated import given_to
from tunec.compiler.lints.launch.scripts import batch_of, count, is_unknown, launches
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    by_slurm = {each.name: each for each in launches(run, "srun")}
    for document in launches(run, "torchrun"):
        batch = batch_of(run, document)
        given = given_to(batch) if batch is not None else None
        said, launcher = document.get("per_node"), document.get("launcher")
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


RULE = Rule(
    name="devices-left-idle",
    severity="warning",
    consequence="slow",
    consumers=("torch",),
    sources=("torch 2.13.0 distributed/run.py: --nproc_per_node is 1 by default",),
    check=_check,
)
