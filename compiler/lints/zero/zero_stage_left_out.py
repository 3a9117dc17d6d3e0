"""ZeRO is configured, and its stage is not said."""

from collections.abc import Iterator

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("deepspeed"):
        block = document.get("zero_optimization")
        if document.is_view or block is None or not block.node.fields:
            continue
        if document.get("zero_optimization.stage") is not None:
            continue
        if "zero_optimization.stage" in document.unknown:
            continue
        yield Finding(
            "zero_optimization has no stage, which is stage 0: nothing is sharded",
            (block.key_label("no stage in here"),),
            ("the other keys of the block are read by stages 1 to 3",),
            "write the stage",
        )


RULE = Rule(
    name="zero-stage-left-out",
    severity="error",
    consequence="silent",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/zero/config.py `DeepSpeedZeroConfig.stage`: 0 by "
            "default"
        ),
    ),
    check=_check,
)
