"""DeepSpeed's warm-up rises by a logarithm where the trainer's schedule would rise in a line."""

import math
from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.batch.counts import is_number
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.schedule.asked import total_steps, warmup_steps

_WARMS: Final = ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR")
_PARAMS: Final = "scheduler.params."
_FEWEST: Final = 10
"""Steps of a warm-up whose shape is worth a word."""


def _check(run: Run) -> Iterator[Finding]:
    kind, asked = run.said("deepspeed", "scheduler.type"), run.said("trainer", "lr_scheduler_type")
    if kind is None or asked is None or kind.value not in _WARMS:
        return
    if run.said("deepspeed", _PARAMS + "warmup_type") is not None:
        return
    steps = _steps(run)
    if steps is None or steps < _FEWEST:
        return
    at = math.log(max(2.0, steps / 10)) / math.log(steps)
    added = kind.document.added(_PARAMS + "warmup_type", "linear")
    yield Finding(
        f"{kind.value} warms up by a logarithm: {at:.0%} of the rate after a tenth of the steps",
        (kind.label("warmup_type is log"), asked.label("rises in a line", primary=False)),
        (
            (
                f"after {steps / 10:g} of {steps:g} steps the rate is log({steps / 10:g}) / "
                f"log({steps:g}) of its height, where a line is at 10%"
            ),
        ),
        'write "warmup_type": "linear"',
        Fix((added,), "unsafe") if added is not None else None,
    )


def _steps(run: Run) -> float | None:
    """Steps of the warm-up: DeepSpeed's own number, or what the trainer fills in for it."""
    steps = run.effective("deepspeed", _PARAMS + "warmup_num_steps").value
    if is_number(steps):
        return float(steps)
    total = total_steps(run)
    warm = warmup_steps(run, None if total is None else total.value)
    return None if warm is None else float(warm.value)


RULE = Rule(
    name="warmup-by-logarithm",
    severity="warning",
    consequence="silent",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/lr_schedules.py `WarmupLR._get_gamma`: "
            "log(step + 1) / log(warmup_num_steps); warmup_type is log by default in WarmupLR, "
            "WarmupDecayLR and WarmupCosineLR"
        ),
        "transformers 4.40.2 to 5.23.0 optimization.py: step / num_warmup_steps",
    ),
    check=_check,
)
