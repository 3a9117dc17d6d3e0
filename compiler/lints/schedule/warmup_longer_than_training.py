"""Warm-up does not end before training does."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.lints.batch.counts import is_whole
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.schedule.asked import is_overridden, total_steps, warmup_steps

_COSINE: Final = "WarmupCosineLR"
_DIVIDED: Final[Mapping[str, Any]] = {
    "notes": ("ZeroDivisionError in the first step behind the warm-up: it divides by the rest",),
    "severity": None,
    "consequence": "step",
}


def _check(run: Run) -> Iterator[Finding]:
    total = total_steps(run)
    warm = warmup_steps(run, total.value if total else None)
    if total and warm and warm.value >= total.value and not is_overridden(run):
        yield _finding(warm.place, warm.value, total.place, total.value)
    params = "scheduler.params."
    first = run.effective("deepspeed", f"{params}warmup_num_steps")
    last = run.effective("deepspeed", f"{params}total_num_steps")
    if not is_whole(first.value) or not is_whole(last.value) or first.value < last.value:
        return
    if first.place and last.place:
        found = _finding(first.place, first.value, last.place, last.value)
        is_zero = first.value == last.value and run.runs("deepspeed<0.19") is True
        is_cosine = run.effective("deepspeed", "scheduler.type").value == _COSINE
        yield replace(found, **_DIVIDED) if is_cosine and is_zero else found


def _finding(first: Place, warm: int, last: Place, total: int) -> Finding:
    return Finding(
        f"{warm} steps of warm-up in {total} steps of training",
        (first.label("steps of rising rate"), last.label("all steps", primary=False)),
        (f"the rate never falls; its highest value comes at step {warm} or not at all",),
        f"write {max(total * 3 // 100, 1)}, which is 3 % of all steps",
        sum=(Term("warm-up", warm, "steps"), Term("training", total, "steps")),
        severity="warning",
    )


RULE = Rule(
    name="warmup-longer-than-training",
    severity="error",
    consequence="silent",
    consumers=("transformers", "deepspeed"),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 optimization.py "
            "`_get_linear_schedule_with_warmup_lr_lambda`"
            ": current_step / num_warmup_steps while below it"
        ),
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/lr_schedules.py `WarmupDecayLR.__init__`: a "
            "warning, total_num_steps is less than warmup_num_steps"
        ),
        (
            "deepspeed 0.14.5 to 0.18.9 runtime/lr_schedules.py `WarmupCosineLR.get_lr_ratio`: / "
            "(total_num_steps - warmup_num_steps); 0.19.8: max(1, ...); deepspeedai/DeepSpeed#8142"
        ),
    ),
    check=_check,
)
