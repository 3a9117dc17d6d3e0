"""The first implementation of stage 1 is asked for, which is gone."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, said_in, stage_of


def _check(run: Run) -> Iterator[Finding]:
    stage = stage_of(run)
    for place in said_in(run, ("legacy_stage1",)):
        if place.value is True and stage.value in (1, 2, 3):
            yield Finding(
                "legacy_stage1 asks for an implementation that DeepSpeed no longer has",
                (place.label("refused"), *also(stage.place)),
                (),
                "remove it",
                Fix((place.removed(),), "safe"),
            )


RULE = Rule(
    name="legacy-stage-1",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_configure_zero_optimizer`: The "
            "deprecated version of ZeRO Stage 1 is not supported in deepspeed >= 0.5.9"
        ),
    ),
    check=_check,
)
