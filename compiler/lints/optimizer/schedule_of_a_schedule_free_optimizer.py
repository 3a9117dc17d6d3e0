"""A falling rate for an optimizer that stands in for the schedule."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_FLAT: Final = ("constant", "constant_with_warmup")


def _check(run: Run) -> Iterator[Finding]:
    optim, kind = run.said("trainer", "optim"), run.effective("trainer", "lr_scheduler_type")
    if optim is None or not isinstance(optim.value, str) or not isinstance(kind.value, str):
        return
    if not optim.value.startswith("schedule_free_") or kind.value in _FLAT:
        return
    yield Finding(
        f"{optim.value} under a {kind.value} schedule",
        (
            optim.label("averages instead of decaying"),
            *([kind.place.label("", primary=False)] if kind.place is not None else []),
        ),
        (
            (
                "the optimizer averages its iterates in place of a schedule; decayed twice, the "
                "last part of training hardly counts"
            ),
            *([] if kind.place else [f"lr_scheduler_type is left out: {kind.by} is {kind.value}"]),
        ),
        "write lr_scheduler_type: constant",
    )


RULE = Rule(
    name="schedule-of-a-schedule-free-optimizer",
    severity="warning",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        "arXiv 2405.15682 (The Road Less Scheduled), section 2",
        (
            "transformers 4.57.6, 5.23.0 trainer_optimizer.py `_get_schedule_free_optimizer`: the "
            "optimizer has warmup_steps of its own"
        ),
    ),
    check=_check,
)
