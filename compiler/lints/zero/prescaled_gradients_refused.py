"""Gradients are to be scaled before a reduction that scales them itself."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.batch.counts import is_number
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, stage_of

_SCALE: Final = "prescale_gradients"
_FACTOR: Final = "gradient_predivide_factor"


def _check(run: Run) -> Iterator[Finding]:
    stage = stage_of(run)
    scatter = run.effective("deepspeed", "zero_optimization.reduce_scatter")
    if stage.value not in (2, 3) or scatter.value is not True:
        return
    for key in (_SCALE, _FACTOR):
        for place in run.each("deepspeed", key):
            is_bad = place.value is True if key == _SCALE else _divides(place.value)
            if is_bad:
                yield Finding(
                    f"{key} {str(place.value).lower()} is refused at stage {stage.value}",
                    (place.label("refused"), *also(stage.place), *also(scatter.place)),
                    ("with reduce_scatter, gradients are divided after the reduction",),
                    "remove it, or write reduce_scatter: false in zero_optimization",
                    Fix((place.removed(),), "unsafe"),
                )


def _divides(value: object) -> bool:
    return is_number(value) and value != 1


RULE = Rule(
    name="prescaled-gradients-refused",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/zero/stage_1_and_2.py and stage3.py `__init__`: "
            "raise for pre-scaled gradients with reduce_scatter, and for a "
            "gradient_predivide_factor other than 1"
        ),
    ),
    check=_check,
)
