"""What the trainer's schedule comes to: steps, warm-up, arguments of its kind."""

import json
from math import ceil, isfinite
from typing import Any

from msgspec import Struct

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.facts.counts import is_number, is_positive, is_whole
from tunec.compiler.lints.place import Place


class Asked(Struct, frozen=True):
    """A number of the schedule, and the key that says it."""

    value: int
    place: Place


def total_steps(run: LintContext) -> Asked | None:
    """`max_steps`, where it decides how long training lasts."""
    place = run.said("trainer", "max_steps")
    if place is None or not is_whole(place.value) or place.value < 1:
        return None
    return Asked(place.value, place)


def warmup_place(run: LintContext) -> Place | None:
    """The key whose warm-up is taken: steps before a share."""
    for key in ("warmup_steps", "warmup_ratio"):
        place = run.said("trainer", key)
        if place is not None and is_positive(place.value):
            return place
    return None


def warmup_steps(run: LintContext, total: int | None) -> Asked | None:
    """Steps of warm-up by `get_warmup_steps`.

    None where there are none, or where it is a share of an unknown number.
    """
    place = warmup_place(run)
    if place is None or not is_number(place.value) or not isfinite(place.value):
        return None
    if place.value >= 1 and place.path.endswith("steps"):
        return Asked(int(place.value), place)
    return None if total is None else Asked(ceil(total * place.value), place)


def is_overridden(run: LintContext) -> bool:
    """Whether DeepSpeed's own scheduler runs instead of the trainer's."""
    return run.said("deepspeed", "scheduler") is not None


def arguments_of(place: Place | None) -> dict[str, Any] | None:
    """`lr_scheduler_kwargs` as a mapping, also out of the JSON of a flag; None: not known."""
    if place is None or place.value is None:
        return {}
    value = place.value
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return value if isinstance(value, dict) else None
