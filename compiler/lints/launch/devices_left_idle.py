"""Devices are given or made visible for which no process is started."""

from collections.abc import Iterator

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.more_than_allocated import given_to
from tunec.compiler.lints.launch.scripts import (
    batch_of,
    count,
    is_unknown,
    launches,
    listed,
    per_node,
    variable,
)
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run, "torchrun", "accelerate"):
        yield from _of_visible(document)
    for document in launches(run, "accelerate"):
        yield from _of_accelerate(run, document)
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


def _generates(document: Document) -> bool:
    """Whether the script also runs an engine that is meant to have devices of its own."""
    return any(word in document.text.lower() for word in ("vllm", "grpo", "sglang"))


def _of_visible(document: Document) -> Iterator[Finding]:
    """More devices in the list than processes."""
    visible, started = variable(document, "CUDA_VISIBLE_DEVICES"), per_node(document)
    names = listed(visible)
    if visible is None or started is None or names is None or document.unknown & {"flags"}:
        return
    if started[0] < len(names) and started[0] > 1 and not _generates(document):
        yield _finding(started, (len(names), visible), str(document.value("launcher")))


def _of_accelerate(run: Run, document: Document) -> Iterator[Finding]:
    """`--num_processes` counts those of all machines, and is given as those of one."""
    started, batch = per_node(document), batch_of(run, document)
    given = given_to(batch) if batch is not None else None
    if started is None or given is None or document.unknown & {"flags"}:
        return
    if 1 < started[0] < given[0] and not _generates(document):
        yield _finding(started, given, "accelerate")


def _finding(started: tuple[int, Place], given: tuple[int, Place], launcher: str) -> Finding:
    return Finding(
        f"{given[0]} devices on a node, and {launcher} starts {started[0]} processes there",
        (
            started[1].label(f"{started[0]} of {given[0]}"),
            given[1].label("", primary=False),
        ),
        ("a process uses one device",)
        + (("--num_processes counts all machines together",) if launcher == "accelerate" else ()),
        f"start {given[0]} on a node, or take {started[0]}",
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
    consumers=("torch", "accelerate"),
    sources=(
        "torch 2.13.0 distributed/run.py: --nproc_per_node is 1 by default",
        (
            "accelerate 0.30.1 to 1.15.0 utils/launch.py `prepare_multi_gpu_env`: nproc_per_node = "
            "num_processes // num_machines"
        ),
        "tatsu-lab/stanford_alpaca#223",
    ),
    check=_check,
)
