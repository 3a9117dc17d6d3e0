"""A number of a scheduler of DeepSpeed's that it does not take."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.wording import shown
from tunec.compiler.lints.batch.counts import is_number
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_LEAST: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {
    "OneCycle": (("cycle_first_step_size", 1), ("cycle_second_step_size", 0)),
    "LRRangeTest": (("lr_range_test_step_size", 1),),
}

_NEEDED: Final = ("cycle_first_step_size",)


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("deepspeed"):
        kind = document.get("scheduler.type")
        for key, least in _LEAST.get(kind.value, ()) if kind and _is_text(kind.value) else ():
            place = document.get(f"scheduler.params.{key}")
            if place is None or kind is None or not _is_below(place.value, key, least):
                continue
            is_late = place.value is not None and run.runs("deepspeed<0.19")
            yield Finding(
                f"{kind.value}: `{key}` cannot be {shown(place.value)}",
                (place.label("refused"), kind.label("", primary=False)),
                ("the position within the cycle is divided by it",),
                f"write a number of {least} or more",
                consequence="step" if is_late else None,
            )


def _is_below(value: object, key: str, least: int) -> bool:
    """Whether it is too low, or nothing, of which `float` makes no number."""
    if value is None:
        return key in _NEEDED
    return is_number(value) and value < least


def _is_text(value: object) -> bool:
    return isinstance(value, str)


RULE = Rule(
    name="deepspeed-schedule-number-refused",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.19.8 runtime/lr_schedules.py `OneCycle`: cycle_first_step_size must be "
            "positive, cycle_second_step_size must be non-negative; `LRRangeTest`: "
            "lr_range_test_step_size must be a positive integer"
        ),
    ),
    check=_check,
)
