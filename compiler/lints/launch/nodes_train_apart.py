"""Slurm starts a launcher on several nodes, each of which trains by itself."""

from collections.abc import Iterator

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.scripts import batch_of, count, is_unknown, launches
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    steps = {each.name: each for each in launches(run, "srun")}
    for document in launches(run, "torchrun", "accelerate"):
        step, batch = steps.get(document.name), batch_of(run, document)
        nodes = batch.get("nodes") if batch is not None else None
        if step is None or nodes is None or (count(nodes) or 0) < 2 or _is_joined(document, step):
            continue
        place = document.get("nodes") or document.get("launcher")
        meets = document.get("flags.rdzv_endpoint") is not None
        yield Finding(
            f"{nodes.value} runs of one node each, instead of one run of {nodes.value} nodes",
            (
                *([place.label("counts one node")] if place else []),
                nodes.label(f"srun starts it on {nodes.value}", primary=False),
            ),
            (
                "the rendezvous is complete with one node, and the others are not let in"
                if meets
                else "they do not meet, train the same, and write to the same place",
            ),
            "tell the launcher the nodes and where they meet",
            consequence="hang" if meets else None,
        )


def _is_joined(document: Document, step: Document) -> bool:
    """Whether the launcher knows of other nodes, or srun starts it on one only."""
    keys = ("nodes", "flags.nnodes", "flags.num_machines", "flags.config_file")
    if any(is_unknown(document, key) for key in keys) or document.unknown & {"flags"}:
        return True
    if document.get("flags.config_file") or (count(document.get("nodes")) or 1) > 1:
        return True
    if document.get("nodes") is not None and count(document.get("nodes")) is None:
        return True  # a range, 1:4
    return any(step.get(f"flags.{key}") for key in ("nodes", "N", "w", "nodelist", "n", "ntasks"))


RULE = Rule(
    name="nodes-train-apart",
    severity="error",
    consequence="silent",
    consumers=("torch", "accelerate"),
    sources=(
        "torch 2.13.0 distributed/run.py: --nnodes is 1:1 by default, --standalone for one node",
        "Slurm 24.05 srun manual page: the command is started for each task of the job",
    ),
    check=_check,
)
