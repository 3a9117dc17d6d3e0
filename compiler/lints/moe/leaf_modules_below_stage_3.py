"""Leaf modules at a stage that gathers none."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, stage_of

_KEYS: Final = (
    ("deepspeed", "zero_optimization.leaf_module"),
    ("accelerate", "deepspeed_config.deepspeed_moe_layer_cls_names"),
)


def _check(run: Run) -> Iterator[Finding]:
    stage = stage_of(run)
    if stage.value not in (0, 1, 2):
        return
    for kind, key in _KEYS:
        for place in run.each(kind, key):
            yield Finding(
                f"leaf modules do nothing at stage {stage.value}",
                (place.key_label("not read"), *also(stage.place)),
                ("only stage 3 gathers parameters module by module",),
                "remove it",
                Fix((place.removed(),), "safe"),
            )


RULE = Rule(
    name="leaf-modules-below-stage-3",
    severity="note",
    consequence="silent",
    consumers=(
        "deepspeed",
        "accelerate",
    ),
    sources=(
        (
            "deepspeed 0.18.9, 0.19.8 runtime/zero/parameter_offload.py: the only reader of leaf "
            "modules"
        ),
    ),
    check=_check,
)
