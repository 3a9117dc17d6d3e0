"""Warm-ups that a file gives as a share of the run, or in steps, and that amount to the plan's."""

from collections.abc import Mapping
from math import ceil
from typing import Any, Final

from tunec.compiler.read import settle
from tunec.compiler.target import Entry, Json
from tunec.compiler.verify.contract import Case

_SHARE: Final = "schedule.warmup_share"
_STEPS: Final = "schedule.warmup_steps"


def same_warmup(entry: Entry, case: Case, values: Mapping[str, Json]) -> Mapping[str, Any]:
    """The planned warm-up, if a row for the keys of `entry` gives as many steps in other words.

    The Trainer rounds a share of the steps up (transformers 4.40.2 to 5.23.0 training_args.py
    `get_warmup_steps`).
    """
    schedule = case.plan.schedule
    steps = schedule.steps or schedule.estimated_steps
    present = {key: values[key] for key in entry.keys if values.get(key) is not None}
    if _SHARE not in entry.slots or not steps or not present:
        return {}
    planned = _rise(steps, schedule.warmup_share, schedule.warmup_steps)
    for other in case.target.entries(case.dialect):
        if _SHARE in other.slots and other.keys == entry.keys:
            found = settle(other, present)
            if planned and _rise(steps, found.get(_SHARE), found.get(_STEPS)) == planned:
                return {slot: case.plan[slot] for slot in entry.slots}
    return {}


def _rise(steps: int, share: float | None, warmup: int | None) -> int | None:
    """The steps of a warm-up."""
    return ceil(steps * share) if share else warmup
