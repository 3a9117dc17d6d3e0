"""Rows of ds_config.json for the learning rate schedule, if the reader has none of its own.

DeepSpeed steps its schedule after the optimizer, from -1: optimizer step s runs at the rate of
schedule step s - 1, one step behind torch (deepspeed 0.14.5 to 0.19.8 runtime/lr_schedules.py,
runtime/engine.py `_take_model_step`). A warm-up is never shorter than two steps (`WarmupLR`:
`max(2, warmup_num_steps)`), and 0 is refused from 0.19.3 on.
"""

from collections.abc import Mapping
from typing import Any

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, same
from tunec.schemas.terms import ScheduleKind
from tunec.targets.deepspeed.reader import PACKAGE

_SOURCE = "deepspeed 0.14.5 to 0.19.8 runtime/lr_schedules.py"
_TYPE = "scheduler.type"
_TOTAL, _WARMUP, _SHAPE, _LOW, _HIGH, _LOW_SHARE, _LAST_SHARE = (
    f"scheduler.params.{name}"
    for name in (
        "total_num_steps",
        "warmup_num_steps",
        "warmup_type",
        "warmup_min_lr",
        "warmup_max_lr",
        "warmup_min_ratio",
        "cos_min_ratio",
    )
)

_TYPES: dict[ScheduleKind, str] = {
    "constant_with_warmup": "WarmupLR",
    "linear": "WarmupDecayLR",
    "cosine": "WarmupCosineLR",
}
_KINDS = {name: kind for kind, name in _TYPES.items()}


def _has_end(plan: Plan) -> bool:
    return plan.schedule.kind in ("linear", "cosine")


def is_known(plan: Plan) -> bool:
    """Whether the schedule can be written: shares and ends need the number of steps."""
    ends = not _has_end(plan) or plan.schedule.steps is not None
    return ends and plan.schedule.warmup_steps is not None


def _total_is_known(plan: Plan) -> bool:
    return _has_end(plan) and is_known(plan)


def _write(plan: Plan) -> Mapping[str, Any]:
    """The scheduler's type, steps and rise; nothing for a constant rate."""
    kind = plan.schedule.kind
    if kind not in _TYPES:
        return {}
    total = {_TOTAL: plan.schedule.steps} if _has_end(plan) else {}
    steps = max(1, plan.schedule.warmup_steps or 0)
    return {_TYPE: _TYPES[kind], **total, _WARMUP: steps, **_rise(plan)}


def _rise(plan: Plan) -> Mapping[str, Any]:
    """The keys for the warm-up's shape.

    With no warm-up, the two minimum steps are as flat as possible.
    """
    none = plan.schedule.warmup_steps == 0
    rate = plan.optimizer.learning_rate
    if plan.schedule.kind == "cosine":
        return {_SHAPE: "linear", _LOW_SHARE: 1.0 if none else 0.0, _LAST_SHARE: 0.0}
    if plan.schedule.kind == "constant_with_warmup":
        return {_SHAPE: "linear", _LOW: rate if none else 0.0, _HIGH: rate}
    # the logarithm reaches the full rate at its second step, the line at its third
    return {_SHAPE: "log" if none else "linear", _LOW: 0.0, _HIGH: rate}


def _read(found: Mapping[str, Any]) -> Mapping[str, Any]:
    kind = _KINDS.get(found.get(_TYPE, ""))
    if kind is None:
        return {}
    steps = found.get(_WARMUP)
    if steps is None:
        return {"schedule.kind": kind}
    flat = steps == 0 or (steps == 1 and _is_flat(kind, found))
    return {"schedule.kind": kind, "schedule.warmup_steps": 0 if flat else steps}


def _is_flat(kind: ScheduleKind, found: Mapping[str, Any]) -> bool:
    if kind == "cosine":
        return bool(found.get(_LOW_SHARE, 0.0) == 1.0)
    if kind == "constant_with_warmup":
        return _HIGH in found and bool(found.get(_LOW) == found[_HIGH])
    return bool(found.get(_SHAPE, "log") == "log")


SCHEDULER = (
    Entry(
        (_TYPE, _WARMUP, _SHAPE, _LOW, _HIGH, _LOW_SHARE, _LAST_SHARE),
        ("schedule.kind", "schedule.warmup_steps"),
        _write,
        _read,
        f"{_SOURCE}: without a block the rate stays as the optimizer has it",
        absent=((ALWAYS, {"schedule.kind": "constant", "schedule.warmup_steps": 0}),),
        when=is_known,
        package=PACKAGE,
    ),
    same(_TOTAL, "schedule.steps", _SOURCE, when=_total_is_known, package=PACKAGE),
)
