"""An argument of a schedule with which it does not do what its name says."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.lints.batch.counts import is_number, is_whole
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.schedule.asked import (
    arguments_of,
    is_overridden,
    total_steps,
    warmup_steps,
)

_MIN: Final = ("cosine_with_min_lr", "cosine_warmup_with_min_lr")
_FORMS: Final = ("linear", "cosine", "1-sqrt")
_WSD: Final = "warmup_stable_decay"
_UP: Final = "the rate rises to its end instead of falling"

Fault = tuple[str, str, Consequence]
"""What is wrong, why, and when it shows."""


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("trainer"):
        kind, given = document.get("lr_scheduler_type"), document.get("lr_scheduler_kwargs")
        arguments = arguments_of(given)
        if kind is None or given is None or not arguments or is_overridden(run):
            continue
        for key, fault in _faults(run, document, kind.value, arguments):
            yield _finding(document.get(f"lr_scheduler_kwargs.{key}") or given, kind, fault)


def _faults(
    run: Run, document: Document, kind: Any, arguments: dict[str, Any]
) -> Iterator[tuple[str, Fault]]:
    if kind in _MIN:
        yield from _of_floor(document, arguments)
    if kind == _WSD:
        for key in ("warmup_type", "decay_type"):
            if arguments.get(key, "linear") not in _FORMS:
                why = f"taken: {', '.join(_FORMS)}"
                yield key, (f"{key} cannot be {arguments[key]}", why, "init")
        yield from _of_lengths(run, arguments)


def _of_floor(document: Document, arguments: dict[str, Any]) -> Iterator[tuple[str, Fault]]:
    rate, low = document.value("learning_rate"), arguments.get("min_lr")
    if is_number(low) and is_number(rate) and low > rate > 0:
        yield "min_lr", (f"min_lr {low:g} above learning_rate {rate:g}", _UP, "silent")
    share = arguments.get("min_lr_rate")
    if is_number(share) and share > 1:
        why = f"it is a share of the learning rate: {_UP}"
        yield "min_lr_rate", (f"min_lr_rate {share:g} is above 1", why, "silent")


def _of_lengths(run: Run, arguments: dict[str, Any]) -> Iterator[tuple[str, Fault]]:
    total, decay = total_steps(run), arguments.get("num_decay_steps")
    if total is None or not is_whole(decay):
        return
    warm = warmup_steps(run, total.value)
    stable = arguments.get("num_stable_steps", 0)
    whole = decay + (warm.value if warm else 0) + (stable if is_whole(stable) else 0)
    if whole > total.value:
        message = f"phases of {whole} steps in {total.value} steps of training"
        yield (
            "num_decay_steps",
            (message, "the rate has not come down when training ends", "silent"),
        )


def _finding(place: Place, kind: Place, fault: Fault) -> Finding:
    message, why, consequence = fault
    return Finding(
        f"{kind.value}: {message}",
        (place.label(""), kind.label("", primary=False)),
        (why,),
        "write another value",
        severity="warning" if consequence == "silent" else None,
        consequence=consequence,
    )


RULE = Rule(
    name="schedule-argument-unusable",
    severity="error",
    consequence="init",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.51.3 to 5.23.0 optimization.py `get_wsd_schedule`: Unknown warmup "
            "type, Unknown decay type; num_stable_steps is what is left of the training steps; "
            "`get_cosine_with_min_lr_schedule_with_warmup`: min_lr_rate = min_lr / lr"
        ),
    ),
    check=_check,
)
