"""Rows of TrainingArguments for the run's length, learning rate schedule, logging and saving."""

from collections.abc import Mapping
from typing import Any, get_args

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, constant, in_no_plan, named, same
from tunec.schemas.frozen import replace
from tunec.schemas.terms import ScheduleKind
from tunec.targets.rows import in_epochs, in_steps, rises_over_a_share

_SOURCE = "transformers 4.40.2 to 5.23.0 training_args.py `TrainingArguments`"

# ── length and warm-up ───────────────────────────────────────────────────────────────────────────


def _said(key: str, value: int | None) -> Mapping[str, Any]:
    return {} if value is None else {key: value}


def _read_epochs(found: Mapping[str, Any]) -> Mapping[str, Any]:
    return {} if _steps_of(found) else {"schedule.epochs": found.get("num_train_epochs", 3.0)}


def _read_steps(found: Mapping[str, Any]) -> Mapping[str, Any]:
    steps = _steps_of(found)
    return {"schedule.epochs": None, "schedule.steps": steps} if steps else {}


def _steps_of(found: Mapping[str, Any]) -> int | None:
    steps = found.get("max_steps", -1)
    return steps if isinstance(steps, int) and steps > 0 else None


def write_arguments(plan: Plan) -> Mapping[str, Any]:
    """The arguments of the schedule, if there are any."""
    arguments = dict(plan.schedule.arguments)
    return {"lr_scheduler_kwargs": arguments} if arguments else {}


_LENGTH_KEYS = ("num_train_epochs", "max_steps")
LENGTH = (
    Entry(
        _LENGTH_KEYS,
        ("schedule.epochs",),
        lambda plan: {"num_train_epochs": plan.schedule.epochs},
        _read_epochs,
        f"{_SOURCE}: max_steps above 0 overrides num_train_epochs",
        absent=((ALWAYS, {"schedule.epochs": 3.0}),),
        when=in_epochs,
    ),
    Entry(
        _LENGTH_KEYS,
        ("schedule.epochs", "schedule.steps"),
        lambda plan: _said("max_steps", plan.schedule.steps),
        _read_steps,
        f"{_SOURCE}: max_steps above 0 overrides num_train_epochs",
        when=in_steps,
    ),
    named(
        "lr_scheduler_type",
        "schedule.kind",
        {kind: kind for kind in get_args(ScheduleKind)},
        "transformers 4.40.2 to 5.23.0 trainer_utils.py `SchedulerType`",
        default="linear",
    ),
    Entry(
        ("lr_scheduler_kwargs",),
        ("schedule.arguments",),
        write_arguments,
        lambda found: {"schedule.arguments": tuple((found["lr_scheduler_kwargs"] or {}).items())},
        "transformers 4.40.2 to 5.23.0 optimization.py `get_scheduler`: scheduler_specific_kwargs",
        absent=((ALWAYS, {"schedule.arguments": ()}),),
    ),
)
"""Rows for the length of the run and the decay of its rate."""


def _read_warmup_steps(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """The warm-up in steps, unless a share replaces it."""
    steps, ratio = found.get("warmup_steps", 0), found.get("warmup_ratio")
    if 0 < steps < 1 or (steps == 0 and ratio):
        return {}
    return {"schedule.warmup_share": None, "schedule.warmup_steps": steps}


def _read_warmup_share(found: Mapping[str, Any]) -> Mapping[str, Any]:
    steps, ratio = found.get("warmup_steps", 0), found.get("warmup_ratio")
    share = ratio if steps == 0 else steps
    return {"schedule.warmup_share": share} if share and 0 < share < 1 else {}


def _share(key: str, *, since: str | None = None, until: str | None = None) -> Entry:
    return Entry(
        ("warmup_steps", "warmup_ratio"),
        ("schedule.warmup_share",),
        lambda plan: {key: plan.schedule.warmup_share},
        _read_warmup_share,
        f"{_SOURCE} `get_warmup_steps`: from 5.0.0 on warmup_steps below 1 are a share, and "
        "warmup_ratio is deprecated, gone in 5.15",
        since,
        until,
        when=rises_over_a_share,
    )


WARMUP = (
    _share("warmup_ratio", until="5.0"),
    _share("warmup_steps", since="5.0"),
    Entry(
        ("warmup_steps", "warmup_ratio"),
        ("schedule.warmup_steps", "schedule.warmup_share"),
        lambda plan: _said("warmup_steps", plan.schedule.warmup_steps),
        _read_warmup_steps,
        f"{_SOURCE} `get_warmup_steps`",
        absent=((ALWAYS, {"schedule.warmup_steps": 0, "schedule.warmup_share": None}),),
        when=lambda plan: not rises_over_a_share(plan),
    ),
)

# ── what happens along it ────────────────────────────────────────────────────────────────────────

LOGGING = (constant("logging_strategy", "steps", _SOURCE),)
LOG_STEPS = same("logging_steps", "schedule.log_steps", _SOURCE, default=500)
TRL_LOG_STEPS = same(
    "logging_steps",
    "schedule.log_steps",
    "trl trainer/sft_config.py `SFTConfig`: 500 to 0.18, 10 from 0.19 (base_config.py from 0.29)",
    absent=((ALWAYS, 500), ("0.19", 10)),
    package="trl",
)


def write_saving(plan: Plan) -> Mapping[str, Any]:
    """When checkpoints are saved: after a number of steps, or after each epoch."""
    steps = plan.schedule.save_steps
    if steps is None:
        return {"save_strategy": "epoch"}
    return {"save_strategy": "steps", "save_steps": steps}


def _read_saving(found: Mapping[str, Any]) -> Mapping[str, Any]:
    strategy = found.get("save_strategy", "steps")
    if strategy == "epoch":
        return {"schedule.save_steps": None}
    return {"schedule.save_steps": found.get("save_steps", 500)} if strategy == "steps" else {}


SAVING = (
    Entry(
        ("save_strategy", "save_steps"),
        ("schedule.save_steps",),
        write_saving,
        _read_saving,
        _SOURCE,
        absent=((ALWAYS, {"schedule.save_steps": 500}),),
    ),
    same("save_total_limit", "schedule.keep_checkpoints", _SOURCE, default=None),
)


def _evaluation(strategy: str, *others: str) -> Entry:
    """When to evaluate; `strategy` is the key that is written, `others` its older names."""

    def write(plan: Plan) -> Mapping[str, Any]:
        steps = plan.schedule.evaluation_steps
        return {strategy: "no"} if steps is None else {strategy: "steps", "eval_steps": steps}

    def read(found: Mapping[str, Any]) -> Mapping[str, Any]:
        words = [found[key] for key in (strategy, *others) if key in found]
        word = words[0] if words else "no"
        if word in ("no", False):  # YAML 1.1 reads an unquoted no as false
            return {"schedule.evaluation_steps": None}
        steps = found.get("eval_steps")
        return {"schedule.evaluation_steps": steps} if word == "steps" and steps else {}

    return Entry(
        (strategy, *others, "eval_steps"),
        ("schedule.evaluation_steps",),
        write,
        read,
        f"{_SOURCE}: eval_strategy from 4.41.0, evaluation_strategy until 4.51.0",
        absent=((ALWAYS, {"schedule.evaluation_steps": None}),),
    )


def _evaluation_as_it_logs(*strategies: str) -> Entry:
    """Evaluation by steps that are not given: it happens whenever there is a log."""

    def read(found: Mapping[str, Any]) -> Mapping[str, Any]:
        by_steps = any(found.get(key) == "steps" for key in strategies)
        is_open = by_steps and not found.get("eval_steps")
        return {"schedule.evaluation_steps": found["logging_steps"]} if is_open else {}

    return Entry(
        (*strategies, "eval_steps", "logging_steps"),
        ("schedule.evaluation_steps",),
        lambda _: {},
        read,
        f"{_SOURCE} `__post_init__`: eval_steps is then logging_steps",
        when=in_no_plan,
        beside=("eval_steps", "logging_steps"),
    )


EVALUATION = (
    replace(_evaluation("evaluation_strategy"), until="4.41"),
    replace(_evaluation("eval_strategy", "evaluation_strategy"), since="4.41"),
)
EVALUATION_AS_IT_LOGS = _evaluation_as_it_logs("eval_strategy", "evaluation_strategy")
