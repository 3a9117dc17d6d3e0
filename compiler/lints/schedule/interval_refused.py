"""An interval or a warm-up in a number that is none."""

from collections.abc import Iterator
from math import isfinite
from typing import Any, Final

from tunec.compiler.lints.batch.counts import is_number
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_STEPS: Final = {
    "logging_steps": ("logging_strategy",),
    "save_steps": ("save_strategy",),
    "eval_steps": ("eval_strategy", "evaluation_strategy"),
}


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("trainer"):
        for key, strategies in _STEPS.items():
            place = document.get(key)
            if place is not None and _is_by_steps(document, key, strategies):
                yield from _interval(key, place)
        yield from _warmup(run, document)


def _is_by_steps(document: Document, key: str, strategies: tuple[str, ...]) -> bool:
    """Whether the interval is looked at: logging and saving go by steps unless told otherwise."""
    said = next((each for name in strategies if (each := document.get(name))), None)
    if said is None:
        return key != "eval_steps" and not document.unknown & set(strategies)
    return bool(said.value == "steps")


def _interval(key: str, place: Place) -> Iterator[Finding]:
    value = place.value
    if not is_number(value) or not isfinite(value):
        return
    if value > 1 and value != int(value):
        yield _finding(place, "an interval above 1 is a whole number of steps", int(value))
    elif key == "logging_steps" and value == 0:
        yield _finding(place, "logging by steps needs an interval", 10)


def _warmup(run: Run, document: Document) -> Iterator[Finding]:
    steps, share = document.get("warmup_steps"), document.get("warmup_ratio")
    if steps is not None and is_number(steps.value) and steps.value < 0:
        yield _finding(steps, "warm-up cannot be negative", 0)
    if share is None or not is_number(share.value) or document.is_view:
        return
    if not 0 <= share.value <= 1 and run.runs("transformers>=5") is not True:
        yield _finding(share, "a share lies between 0 and 1", min(share.value / 100, 1))


def _finding(place: Place, why: str, near: Any) -> Finding:
    return Finding(
        f"`{place.path}` cannot be {place.value}",
        (place.label("refused"),),
        (why,),
        f"write {near}",
    )


RULE = Rule(
    name="interval-refused",
    severity="error",
    consequence="parse",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 training_args.py `__post_init__`, `_validate_args`: "
            "--logging_steps must be an integer if bigger than 1, requires non-zero "
            "--logging_steps; 4.40.2 to 4.57.6: warmup_ratio must lie in range [0,1]"
        ),
    ),
    check=_check,
)
