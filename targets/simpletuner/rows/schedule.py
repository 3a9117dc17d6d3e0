"""Length, learning rate, saving and evaluation, in config.json."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, Json, constant, fixed, same
from tunec.targets.rows import in_steps, without_deepspeed
from tunec.targets.simpletuner.families import LAZY_REGISTRY
from tunec.targets.simpletuner.rows.model import TRAINER

SCHEDULES: Final = "helpers/training/custom_schedule.py get_lr_scheduler"

_ALL_CHECKPOINTS: Final = 1_000_000
"""More than any run saves: no value keeps all checkpoints, and the default is 5."""


_RISING: Final = ("constant", "constant_with_warmup", "linear")
_FALLING_ONCE: Final = ("cosine", "cosine_with_min_lr")
KINDS: Final = (*_RISING, *_FALLING_ONCE, "polynomial")
"""The schedules that `--lr_scheduler` has. Its cosine_with_restarts does not change the rate
(`CosineAnnealingHardRestarts.step`: the remainder of a division by -1 is 0)."""
_POLYNOMIAL: Final[Mapping[str, float]] = {"lr_end": 1e-7, "power": 1.0}
"""transformers 5.23.0 optimization.py `get_polynomial_decay_schedule_with_warmup`."""
_POWER: Final = 0.8
_END: Final = 4e-7
"""Defaults of `--lr_power` and `--lr_end`."""


def _write_rates(plan: Plan) -> Mapping[str, Json]:
    schedule, told = plan.schedule, dict(plan.schedule.arguments)
    keys = {"lr_scheduler": schedule.kind, "lr_warmup_steps": schedule.warmup_steps}
    if schedule.kind in _RISING:
        return keys
    if schedule.kind == "polynomial":
        shape = {**_POLYNOMIAL, **told}
        return {**keys, "lr_end": shape["lr_end"], "lr_power": shape["power"]}
    return _write_cosine(plan, told.get("min_lr", 0.0)) if schedule.kind in _FALLING_ONCE else {}


def _write_cosine(plan: Plan, end: Json) -> Mapping[str, Json]:
    """Cosine has no warmup: `lr_warmup_steps` is its half period, so all steps of the run."""
    schedule = plan.schedule
    if schedule.warmup_steps or schedule.epochs is not None:
        return {}
    return {
        "lr_scheduler": "cosine",
        "lr_warmup_steps": schedule.steps,
        "lr_end": end,
        "max_train_steps": schedule.steps,
    }


def _read_rates(found: Mapping[str, Json], *, rewrites: bool) -> Mapping[str, Any]:
    if found.get("deepspeed_config"):
        return {}
    kind = found.get("lr_scheduler", "constant_with_warmup")
    steps = int(found.get("lr_warmup_steps", 0))
    if kind in ("cosine", "cosine_with_warmup"):
        return _cosine(steps, int(found.get("max_train_steps") or 0), found.get("lr_end", 0.0))
    if kind == "polynomial":
        return _shape(kind, steps, _polynomial(found))
    if kind == "constant":
        kind, steps = ("constant_with_warmup", steps) if rewrites and steps else (kind, 0)
    return _shape(kind, steps) if kind in _RISING else {}


def _shape(kind: str, warmup: int, told: Mapping[str, Json] | None = None) -> Mapping[str, Any]:
    arguments = tuple((told or {}).items())
    return dict(zip(_SHAPE, (kind, warmup, arguments), strict=True))


_SHAPE: Final = ("schedule.kind", "schedule.warmup_steps", "schedule.arguments")


def _polynomial(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """The settings that differ from transformers' defaults."""
    said = {"lr_end": found.get("lr_end", _END), "power": found.get("lr_power", _POWER)}
    return {name: value for name, value in said.items() if value != _POLYNOMIAL[name]}


def _cosine(half_period: int, steps: int, end: Json) -> Mapping[str, Any]:
    """Our cosine falls once, until the end of the run; theirs rises again after half a period."""
    if half_period <= 0 or half_period != steps:
        return {}
    return _shape("cosine_with_min_lr", 0, {"min_lr": end}) if end else _shape("cosine", 0)


def _moves_by_itself(plan: Plan) -> bool:
    """Whether SimpleTuner's own schedule changes the rate, and has settings for it."""
    is_known = plan.schedule.kind in KINDS and not lacks_steps(plan)
    return is_known and without_deepspeed(plan)


def _rates(*, rewrites: bool, since: str | None = None, until: str | None = None) -> Entry:
    keys = ("lr_scheduler", "lr_warmup_steps", "lr_end", "lr_power", "max_train_steps")
    return Entry(
        (*keys, "deepspeed_config"),
        _SHAPE,
        _write_rates,
        lambda found: _read_rates(found, rewrites=rewrites),
        f"{SCHEDULES}; cli_utils.normalize_lr_scheduler_value from 4.0.0 on",
        since,
        until,
        when=_moves_by_itself,
    )


def lacks_steps(plan: Plan) -> bool:
    """Whether the schedule needs steps that are unknown: of the warmup, or of the end."""
    schedule = plan.schedule
    ends = schedule.kind in _FALLING_ONCE and schedule.epochs is not None
    return schedule.warmup_steps is None or ends


def _write_epochs(plan: Plan) -> Mapping[str, Json]:
    epochs = plan.schedule.epochs
    if epochs is None or epochs != int(epochs):
        return {}
    return {"max_train_steps": 0, "num_train_epochs": int(epochs)}


def _read_steps(found: Mapping[str, Json]) -> Mapping[str, Any]:
    steps = found.get("max_train_steps")
    return {"schedule.steps": steps, "schedule.epochs": None} if steps else {}


def _read_epochs(found: Mapping[str, Json]) -> Mapping[str, Any]:
    epochs = found.get("num_train_epochs", 1)
    return {"schedule.epochs": float(epochs)} if epochs and not _read_steps(found) else {}


def _write_saving(plan: Plan) -> Mapping[str, Json]:
    if plan.schedule.save_steps is None:
        return {"checkpoint_step_interval": 0, "checkpoint_epoch_interval": 1}
    return {"checkpoint_step_interval": plan.schedule.save_steps}


def _read_saving(found: Mapping[str, Json]) -> Mapping[str, Any]:
    steps = found.get("checkpoint_step_interval", found.get("checkpointing_steps", 500))
    if steps:
        return {"schedule.save_steps": steps}
    return {"schedule.save_steps": None} if found.get("checkpoint_epoch_interval") == 1 else {}


def _write_keeping(plan: Plan) -> Mapping[str, Json]:
    keep = plan.schedule.keep_checkpoints
    return {"checkpoints_total_limit": _ALL_CHECKPOINTS if keep is None else keep}


def _read_keeping(found: Mapping[str, Json]) -> Mapping[str, Any]:
    limit = found.get("checkpoints_total_limit", found.get("save_total_limit", 5))
    return {"schedule.keep_checkpoints": None if limit >= _ALL_CHECKPOINTS else limit}


SCHEDULE: Final = (
    _rates(rewrites=False, until=LAZY_REGISTRY),
    _rates(rewrites=True, since=LAZY_REGISTRY),
    fixed(
        "schedule.arguments",
        (),
        f"{TRAINER} init_lr_scheduler: DeepSpeed's schedule gets its length and warm-up",
        when=lambda plan: not _moves_by_itself(plan),
    ),
    Entry(
        ("max_train_steps", "num_train_epochs"),
        ("schedule.steps", "schedule.epochs"),
        lambda plan: {"max_train_steps": plan.schedule.steps, "num_train_epochs": 0},
        _read_steps,
        "helpers/configuration/cmd_args.py: both above 0 are refused, and epochs default to 1",
        when=in_steps,
    ),
    constant(
        "ignore_final_epochs",
        True,
        "3.1.6 to 4.4.1 helpers/training/trainer.py train: the run ends with the epochs that the "
        "steps are thought to take, each epoch's tail counted as a step",
        until="4.5",
        when=in_steps,
    ),
    Entry(
        ("max_train_steps", "num_train_epochs"),
        ("schedule.epochs",),
        _write_epochs,
        _read_epochs,
        "helpers/configuration/cmd_args.py: epochs are whole numbers",
        absent=((ALWAYS, {"schedule.epochs": 1.0}),),
        when=lambda plan: plan.schedule.epochs is not None,
    ),
    Entry(
        ("checkpoint_step_interval", "checkpoint_epoch_interval", "checkpointing_steps"),
        ("schedule.save_steps",),
        _write_saving,
        _read_saving,
        TRAINER,
        absent=((ALWAYS, {"schedule.save_steps": 500}),),
    ),
    Entry(
        ("checkpoints_total_limit", "save_total_limit"),
        ("schedule.keep_checkpoints",),
        _write_keeping,
        _read_keeping,
        TRAINER,
        absent=((ALWAYS, {"schedule.keep_checkpoints": 5}),),
    ),
    same(
        "eval_steps_interval",
        "schedule.evaluation_steps",
        "helpers/training/validation.py Evaluation",
        default=None,
    ),
)
