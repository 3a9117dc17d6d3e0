"""Several nodes for the deepspeed launcher, which knows of none but its own."""

from collections.abc import Iterator

from tunec.compiler.lints.launch.scripts import count, launches
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run, "deepspeed"):
        nodes = document.get("flags.num_nodes")
        if nodes is None or (count(nodes) or 0) < 2 or document.get("hostfile"):
            continue
        if any(document.get(f"flags.{key}") for key in ("hostfile", "H", "no_ssh", "launcher")):
            continue
        yield Finding(
            f"{nodes.value} nodes, and no hostfile that names them",
            (nodes.label("only this node"),),
            (
                "without a hostfile the launcher takes the devices of its own machine",
                "/job/hostfile is read where it is there",
            ),
            "give the launcher --hostfile with a line `NAME slots=8` for each node",
        )


RULE = Rule(
    name="nodes-without-hostfile",
    severity="warning",
    consequence="silent",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 launcher/runner.py `fetch_hostfile`: Unable to find "
            "hostfile, "
            "will proceed with training with local resources only; DLTS_HOSTFILE is /job/hostfile"
        ),
        "deepspeedai/DeepSpeedExamples#145, deepspeedai/DeepSpeed#5221",
    ),
    check=_check,
)
