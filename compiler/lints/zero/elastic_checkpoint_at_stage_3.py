"""Checkpoints are to fit another number of devices, and do not at stage 3."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, said_in, stage_of


def _check(run: Run) -> Iterator[Finding]:
    stage = stage_of(run)
    for place in said_in(run, ("elastic_checkpoint",)):
        if place.value is True and stage.value == 3:
            yield Finding(
                "elastic_checkpoint does nothing at stage 3",
                (place.label("not read"), *also(stage.place)),
                ("a checkpoint of stage 3 loads on as many devices as wrote it",),
                "remove it; convert with ds_to_universal.py and resume with "
                'checkpoint: {"load_universal": true}',
                Fix((place.removed(),), "safe"),
            )


RULE = Rule(
    name="elastic-checkpoint-at-stage-3",
    severity="warning",
    consequence="resume",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_configure_zero_optimizer`: stage 3 is "
            "not given it, or given it and refuses another size (stage3.py `load_state_dict`)"
        ),
        (
            "deepspeed 0.19.8 runtime/zero/config.py `elastic_checkpoint_deprecated`: no longer "
            "supported; use Universal Checkpointing"
        ),
    ),
    check=_check,
)
