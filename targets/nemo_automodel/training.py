"""Rows of batches, optimizer, learning rate and length, and of the rest of the loop."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Entry, Json, constant, derived, same
from tunec.targets.nemo_automodel.packages import SOURCE
from tunec.targets.rows import evaluates, in_epochs, in_steps, micro_batch, row, whole_epochs

_STEPS: Final = f"{SOURCE} components/training/step_scheduler.py `StepScheduler`"
_TORCH: Final = f"{SOURCE} components/optim/optimizer.py `OptimizerFromFactoryConfig`: torch's own"
_RATE: Final = (
    f"{SOURCE} components/optim/optimizer.py `LRSchedulerConfig`, components/optim/scheduler.py "
    "`OptimizerParamScheduler`"
)
_CLIPS: Final = f"{SOURCE} recipes/llm/train_ft.py `setup`: 1.0 where nothing is said"
_KEEPS: Final = f"{SOURCE} components/checkpoint/config.py `CheckpointingConfig`"


# ── batches and length ───────────────────────────────────────────────────────────────────────────

_MICRO, _GLOBAL = "step_scheduler.local_batch_size", "step_scheduler.global_batch_size"
_EPOCHS, _MOST = "step_scheduler.num_epochs", "step_scheduler.max_steps"


def _read_length(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The length: epochs and steps both end a run; if steps are set, only they count."""
    epochs, steps = found.get(_EPOCHS, 10), found.get(_MOST)
    if steps is None:
        return {"schedule.epochs": float(10 if epochs is None else epochs)}
    return {"schedule.epochs": None, "schedule.steps": steps}


BATCH: Final = (
    micro_batch(_MICRO, 1, f"{SOURCE} recipes/llm/train_ft.py: of held-out data too"),
    same(_GLOBAL, "batch.global", _STEPS, default=32),
)


# ── optimizer ────────────────────────────────────────────────────────────────────────────────────

_CLASS, _FUSED, _DECAY = "optimizer._target_", "optimizer.fused", "optimizer.weight_decay"


def _write_class(plan: Plan) -> Mapping[str, Json]:
    if plan.optimizer.name != "adamw" or plan.optimizer.kernel not in ("foreach", "fused"):
        return {}
    fused = {_FUSED: True} if plan.optimizer.kernel == "fused" else {}
    return {_CLASS: "torch.optim.AdamW", **fused}


def _read_class(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The optimizer: AdamW, or Adam without weight decay, which is equivalent."""
    name = str(found.get(_CLASS, ""))
    is_plain = name == "torch.optim.Adam" and float(found.get(_DECAY, 0) or 0) == 0
    if name != "torch.optim.AdamW" and not is_plain:
        return {}
    kernel = "fused" if found.get(_FUSED) is True else "foreach"
    return {"optimizer.name": "adamw", "optimizer.kernel": kernel}


OPTIMIZER: Final = (
    row(
        (_CLASS, _FUSED, _DECAY),
        ("optimizer.name", "optimizer.kernel"),
        lambda plan: {**_write_class(plan), _DECAY: plan.optimizer.weight_decay},
        _read_class,
        _TORCH,
        beside=(_DECAY,),
    ),
    same("optimizer.lr", "optimizer.learning_rate", _TORCH, default=1e-3),
    row(
        (_DECAY, _CLASS),
        ("optimizer.weight_decay",),
        lambda plan: {_DECAY: plan.optimizer.weight_decay, **_write_class(plan)},
        lambda found: {
            "optimizer.weight_decay": found.get(
                _DECAY, 0.01 if str(found.get(_CLASS, "")).endswith("AdamW") else 0.0
            )
        },
        _TORCH,
        beside=(_CLASS,),
    ),
    row(
        ("optimizer.betas",),
        ("optimizer.beta1", "optimizer.beta2"),
        lambda plan: {"optimizer.betas": [plan.optimizer.beta1, plan.optimizer.beta2]},
        lambda found: dict(
            zip(("optimizer.beta1", "optimizer.beta2"), found["optimizer.betas"], strict=True)
        ),
        _TORCH,
        absent={"optimizer.beta1": 0.9, "optimizer.beta2": 0.999},
    ),
    same("optimizer.eps", "optimizer.epsilon", _TORCH, default=1e-8),
    same("clip_grad_norm.max_norm", "optimizer.max_grad_norm", _CLIPS, default=1.0),
)


# ── the rate ─────────────────────────────────────────────────────────────────────────────────────

_STYLE, _LEAST, _RISE, _FIRST = (
    f"lr_scheduler.{name}" for name in ("lr_decay_style", "min_lr", "lr_warmup_steps", "init_lr")
)
_STYLES: Final[Mapping[str, str]] = {
    "constant": "constant",
    "constant_with_warmup": "constant",
    "linear": "linear",
    "cosine": "cosine",
    "cosine_with_min_lr": "cosine",
}
_KIND, _ARGUMENTS, _LR = "schedule.kind", "schedule.arguments", "optimizer.lr"
_SHARE: Final = "min_lr_rate"


def _least(plan: Plan) -> float:
    """The learning rate at which a cosine ends."""
    share = dict(plan.schedule.arguments).get(_SHARE, 0.0)
    return float(share) * plan.optimizer.learning_rate


def _write_rate(plan: Plan) -> Mapping[str, Json]:
    style = _STYLES.get(plan.schedule.kind)
    if style is None:
        return {}
    rise = plan.schedule.warmup_steps
    rises = {} if rise is None else {_RISE: rise}
    least = {_LEAST: _least(plan), _LR: plan.optimizer.learning_rate}
    return {_STYLE: style, _FIRST: 0.0, **least, **rises}


def _read_rate(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The schedule; without any of its keys the learning rate is constant."""
    if not {*found} - {_LR}:
        return {_KIND: "constant", _ARGUMENTS: ()}
    style, least = found.get(_STYLE, "cosine"), found.get(_LEAST)
    if style == "constant":
        return {_KIND: "constant_with_warmup" if found.get(_RISE) else "constant", _ARGUMENTS: ()}
    if style == "linear" and least is not None and float(least) == 0:
        return {_KIND: "linear", _ARGUMENTS: ()}
    if style != "cosine":
        return {}
    share = 0.01 if least is None else round(float(least) / float(found.get(_LR, 1e-3)), 10)
    return {
        _KIND: "cosine_with_min_lr" if share else "cosine",
        _ARGUMENTS: ((_SHARE, share),) if share else (),
    }


def _read_rise(found: Mapping[str, Json]) -> Mapping[str, Any]:
    return {"schedule.warmup_steps": found.get(_RISE)} if found.get(_RISE) is not None else {}


SCHEDULE: Final[tuple[Entry, ...]] = (
    row(
        (_EPOCHS, _MOST),
        ("schedule.epochs",),
        whole_epochs(_EPOCHS),
        _read_length,
        _STEPS,
        absent={"schedule.epochs": 10.0},
        when=in_epochs,
    ),
    row(
        (_EPOCHS, _MOST),
        ("schedule.epochs", "schedule.steps"),
        lambda plan: {_MOST: plan.schedule.steps, _EPOCHS: None},
        _read_length,
        f"{_STEPS}: without epochs as many as these steps take",
        when=in_steps,
    ),
    row(
        (_STYLE, _LEAST, _RISE, _FIRST, _LR),
        (_KIND, _ARGUMENTS),
        _write_rate,
        _read_rate,
        f"{_RATE}; by default it rises from a tenth of the rate, and ends at a hundredth",
        absent={_KIND: "constant", _ARGUMENTS: ()},
        beside=(_LR,),
    ),
    row(
        (_RISE,),
        ("schedule.warmup_steps",),
        _write_rate,
        _read_rise,
        _RATE,
    ),
)


# ── what surrounds the loop ──────────────────────────────────────────────────────────────────────

_SAVE, _EACH = "step_scheduler.ckpt_every_steps", "step_scheduler.save_checkpoint_every_epoch"
_PROJECT: Final = "wandb.project"


def _write_saving(plan: Plan) -> Mapping[str, Json]:
    steps = plan.schedule.save_steps
    return {_SAVE: steps, _EACH: False} if steps is not None else {_SAVE: None, _EACH: True}


def _read_saving(found: Mapping[str, Json]) -> Mapping[str, Any]:
    steps = found.get(_SAVE, 100)
    if steps is None:
        return {"schedule.save_steps": None}
    return {"schedule.save_steps": steps}


def _trackers(found: Mapping[str, Json]) -> Mapping[str, Any]:
    is_off = found.get("wandb.enable") is False
    is_there = any(key.startswith("wandb.") for key in found)
    return {"runtime.report_to": ("wandb",) if is_there and not is_off else ()}


def _write_trackers(plan: Plan) -> Mapping[str, Json]:
    return {_PROJECT: plan.job.name} if plan.runtime.report_to == ("wandb",) else {}


RUN: Final[tuple[Entry, ...]] = (
    same("step_scheduler.log_remote_every_steps", "schedule.log_steps", _STEPS, default=1),
    row(
        (_SAVE, _EACH),
        ("schedule.save_steps",),
        _write_saving,
        _read_saving,
        f"{_STEPS}; the last step is saved too",
        absent={"schedule.save_steps": 100},
    ),
    same(
        "checkpoint.max_recent_checkpoints",
        "schedule.keep_checkpoints",
        _KEEPS,
        since="0.6",
        default=None,
    ),
    same("step_scheduler.val_every_steps", "schedule.evaluation_steps", _STEPS, default=None),
    derived(
        "step_scheduler.validate_on_checkpoint",
        lambda _: False,
        f"{_STEPS}: else where it saves, too",
        since="0.7",
        when=evaluates,
    ),
    same("checkpoint.checkpoint_dir", "runtime.output", _KEEPS, default="checkpoints/"),
    same("seed", "runtime.seed", f"{SOURCE} recipes/llm/train_ft.py `setup`", default=42),
    row(
        (_PROJECT, "wandb.name", "wandb.enable", "wandb.entity", "wandb.dir"),
        ("runtime.report_to",),
        _write_trackers,
        _trackers,
        f"{SOURCE} components/loggers/loggers.py `WandbConfig`",
        absent={"runtime.report_to": ()},
    ),
    same(
        "neftune.noise_alpha",
        "runtime.neftune_alpha",
        f"{SOURCE} components/training/neftune.py",
        default=None,
    ),
    constant("dist_env.backend", "nccl", f"{SOURCE} components/distributed/init_utils.py"),
    constant("dist_env.timeout_minutes", 30, f"{SOURCE} components/distributed/init_utils.py"),
)
