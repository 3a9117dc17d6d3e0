"""Quantised gradients without the reduction that quantises them."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, said_in, stage_of


def _check(run: Run) -> Iterator[Finding]:
    stage = stage_of(run)
    scatter = run.effective("deepspeed", "zero_optimization.reduce_scatter")
    for place in said_in(run, ("zero_quantized_gradients",)):
        if place.value is True and stage.value == 3 and scatter.value is False:
            yield Finding(
                "zero_quantized_gradients needs reduce_scatter, and that is false",
                (place.label("refused"), *also(scatter.place), *also(stage.place)),
                (),
                "write reduce_scatter: true",
                Fix((scatter.place.replaced(True),), "unsafe") if scatter.place else None,
            )


RULE = Rule(
    name="quantized-gradients-need-scatter",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/zero/stage3.py `__init__`: when enable "
            "all_to_all_reduce, reduce_scatter should also be enabled"
        ),
    ),
    check=_check,
)
