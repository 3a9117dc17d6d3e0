"""The deepspeed launcher is started on each node by itself, and not told which node it is."""

from collections.abc import Iterator

from tunec.compiler.lints.launch.scripts import is_unknown, launches
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run, "deepspeed"):
        alone, rank = document.get("flags.no_ssh"), document.get("flags.node_rank")
        if alone is None or alone.value is not True or is_unknown(document, "flags.node_rank"):
            continue
        if rank is None:
            yield Finding(
                "--no_ssh without --node_rank",
                (alone.key_label("refused"),),
                (
                    "each node starts its own processes, and has to be told its number",
                    "Launching training without ssh, but --node_rank is not set correctly",
                ),
                "add --node_rank, from 0, another one on each node",
            )


RULE = Rule(
    name="node-rank-missing",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=("deepspeed 0.14.5 to 0.19.8 launcher/runner.py `main`: assert 0 <= args.node_rank",),
    check=_check,
)
