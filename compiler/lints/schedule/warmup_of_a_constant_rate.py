"""Warm-up of a schedule that has none."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.schedule.asked import is_overridden, warmup_place

_NONE: Final = ("constant", "reduce_lr_on_plateau", "greedy")


def _check(run: Run) -> Iterator[Finding]:
    kind, warm = run.said("trainer", "lr_scheduler_type"), warmup_place(run)
    if kind is None or warm is None or kind.value not in _NONE or is_overridden(run):
        return
    fix = Fix((kind.replaced("constant_with_warmup"),), "unsafe")
    yield Finding(
        f"{warm.path} {warm.value} does nothing: {kind.value} has no warm-up",
        (warm.label("does nothing"), kind.label("", primary=False)),
        ("the rate is at its full height from the first step",),
        "write constant_with_warmup" if kind.value == "constant" else f"remove {warm.path}",
        fix if kind.value == "constant" else None,
    )


RULE = Rule(
    name="warmup-of-a-constant-rate",
    severity="error",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 optimization.py `get_scheduler`: SchedulerType.CONSTANT "
            "and REDUCE_ON_PLATEAU are built without num_warmup_steps"
        ),
    ),
    check=_check,
)
