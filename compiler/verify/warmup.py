"""Warm-ups that a file gives as a share of the run and that amount to the planned steps."""

from collections.abc import Mapping
from math import ceil
from typing import Any, Final

from tunec.compiler.read import settle
from tunec.compiler.target import Entry, Json
from tunec.compiler.verify.contract import Case

_SHARE: Final = "schedule.warmup_share"


def same_warmup(entry: Entry, case: Case, values: Mapping[str, Json]) -> Mapping[str, Any]:
    """The planned warm-up, if other rows for the keys of `entry` give a share that amounts to it.

    The Trainer rounds a share of the steps up (transformers 4.40.2 to 5.23.0 training_args.py
    `get_warmup_steps`).
    """
    schedule = case.plan.schedule
    steps = schedule.steps or schedule.estimated_steps
    if _SHARE not in entry.slots or schedule.warmup_share is not None or not steps:
        return {}
    present = {key: values[key] for key in entry.keys if values.get(key) is not None}
    for other in case.target.entries(case.dialect):
        if _SHARE in other.slots and present and other.keys == entry.keys:
            share = settle(other, present).get(_SHARE)
            if share and ceil(steps * share) == schedule.warmup_steps:
                return {slot: case.plan[slot] for slot in entry.slots}
    return {}
