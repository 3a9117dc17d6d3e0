"""Rows of Unsloth's file: recomputed activations, batch, optimizer, schedule, fixed settings."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Entry, Json, fixed, same
from tunec.schemas.frozen import replace
from tunec.targets.rows import has_images, has_text_alone, in_epochs, row, whole_epochs
from tunec.targets.unsloth.packages import CONFIG, STUDIO, TRAIN

_TRAINING: Final = f"{CONFIG} `TrainingConfig`"
_LOGGING: Final = f"{CONFIG} `LoggingConfig`"
_WORKER: Final = f"{STUDIO} `_train_worker`"


def _default(key: str, slot: str, value: Any) -> Entry:
    return same(f"training.{key}", slot, _TRAINING, default=value)


# ── recomputed activations ───────────────────────────────────────────────────────────────────────

_KEY: Final = "training.gradient_checkpointing"
_LENGTH: Final = "training.max_seq_length"
_MODE, _OFFLOAD = "activation_checkpointing.mode", "activation_checkpointing.offload"
_VARIANT: Final = "activation_checkpointing.reentrant"
_SHORT: Final = 512
"""The fewest tokens for which activations are moved to the host."""
_RECOMPUTES: Final = (
    "unsloth 2026.9.8 to 2026.10.9 models/_utils.py `apply_unsloth_gradient_checkpointing`: "
    "`unsloth` moves what is kept to the host, unless sequences are below 512 tokens"
)


def _write_checkpointing(plan: Plan) -> Mapping[str, Json]:
    how = plan.activation_checkpointing
    length = {_LENGTH: plan.data.sequence + plan.data.image_tokens}
    if how.mode == "none":
        return {_KEY: "none", **length}
    return {_KEY: "unsloth" if how.offload else "true", **length}


_ON: Final = (True, "true", "1", "yes")
_OFF: Final = (False, "none", "false", "0", "no", "off")


def _checkpointing(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """Recomputation, by the values of releases since 2026.9.13; earlier ones refuse some."""
    said = found.get(_KEY, "unsloth")
    word = said.strip().lower() if isinstance(said, str) else said
    if word in _OFF:
        return {_MODE: "none", _OFFLOAD: False}
    if word in _ON:
        return {_MODE: "layer", _OFFLOAD: False}
    if word not in ("", "unsloth"):
        return {}
    return {_MODE: "layer", _OFFLOAD: found.get(_LENGTH, 2048) >= _SHORT}


def _recomputes_text(plan: Plan) -> bool:
    return has_text_alone(plan) and plan.activation_checkpointing.mode == "layer"


CHECKPOINTING: Final = (
    row(
        (_KEY, _LENGTH),
        (_MODE, _OFFLOAD),
        _write_checkpointing,
        _checkpointing,
        f"{_TRAINING}; {_RECOMPUTES}",
        absent={_MODE: "layer", _OFFLOAD: True},
    ),
    fixed("activation_checkpointing.segment", 1, f"{_RECOMPUTES}; a layer by itself"),
    fixed("activation_checkpointing.gap", 0, f"{_RECOMPUTES}; every layer"),
    replace(
        fixed(
            _VARIANT,
            True,
            "unsloth 2026.9.8 to 2026.10.9 models/llama.py `LlamaModel_fast_forward`: "
            "use_reentrant; models/vision.py `post_patch_model`",
        ),
        when=_recomputes_text,
    ),
)


# ── batch, optimizer, schedule ───────────────────────────────────────────────────────────────────

_EPOCHS, _STEPS = "training.num_epochs", "training.max_steps"


def _epochs(found: Mapping[str, Json]) -> Mapping[str, Any]:
    return {} if found.get(_STEPS, 0) > 0 else {"schedule.epochs": found.get(_EPOCHS, 3)}


def _steps(found: Mapping[str, Json]) -> Mapping[str, Any]:
    steps = found.get(_STEPS, 0)
    return {"schedule.epochs": None, "schedule.steps": steps} if steps > 0 else {}


def _said(key: str, value: int | None) -> Mapping[str, Json]:
    return {} if value is None else {key: value}


_WARMUP: Final = "training.warmup_steps"
_SAVE: Final = "training.save_steps"
BATCH: Final = (
    _default("batch_size", "batch.micro", 2),
    _default("gradient_accumulation_steps", "batch.accumulation", 4),
)
OPTIMIZER: Final = (
    fixed("optimizer.name", "adamw_8bit", f"{TRAIN}: `_optimizer_for_host`"),
    fixed("optimizer.kernel", "bitsandbytes", f"{TRAIN}: `_optimizer_for_host`"),
    _default("learning_rate", "optimizer.learning_rate", 2e-4),
    _default("weight_decay", "optimizer.weight_decay", 0.01),
    fixed("optimizer.beta1", 0.9, f"{_WORKER}: as TrainingArguments has it"),
    fixed("optimizer.beta2", 0.999, f"{_WORKER}: as TrainingArguments has it"),
    fixed("optimizer.epsilon", 1e-8, f"{_WORKER}: as TrainingArguments has it"),
    replace(
        fixed("optimizer.max_grad_norm", 1.0, f"{_WORKER}: as TrainingArguments has it"),
        when=has_text_alone,
    ),
    replace(fixed("optimizer.max_grad_norm", 0.3, f"{_WORKER}: max_grad_norm"), when=has_images),
)
SCHEDULE: Final = (
    row(
        (_EPOCHS, _STEPS),
        ("schedule.epochs",),
        whole_epochs(_EPOCHS),
        _epochs,
        f"{_TRAINING}; {_WORKER}: max_steps above 0 wins",
        absent={"schedule.epochs": 3},
        when=in_epochs,
    ),
    row(
        (_EPOCHS, _STEPS),
        ("schedule.epochs", "schedule.steps"),
        lambda plan: _said(_STEPS, plan.schedule.steps),
        _steps,
        f"{_TRAINING}; {_WORKER}: max_steps above 0 wins",
        when=lambda plan: not in_epochs(plan),
    ),
    replace(fixed("schedule.kind", "linear", f"{_WORKER}: lr_scheduler_type"), when=has_text_alone),
    replace(fixed("schedule.kind", "cosine", f"{_WORKER}: lr_scheduler_type"), when=has_images),
    fixed("schedule.arguments", (), f"{_WORKER}: no lr_scheduler_kwargs"),
    row(
        (_WARMUP,),
        ("schedule.warmup_steps",),
        lambda plan: {_WARMUP: plan.schedule.warmup_steps},
        lambda found: {"schedule.warmup_steps": found[_WARMUP]},
        _TRAINING,
        absent={"schedule.warmup_steps": 5},
    ),
    fixed("schedule.log_steps", 1, f"{_WORKER}: logging_steps"),
    row(
        (_SAVE,),
        ("schedule.save_steps",),
        lambda plan: _said(_SAVE, plan.schedule.save_steps),
        lambda found: {"schedule.save_steps": found[_SAVE]} if found[_SAVE] > 0 else {},
        f"{_TRAINING}; studio/backend/core/training/training.py `apply_save_strategy`: 0 saves "
        "nothing before the end",
    ),
    fixed("schedule.keep_checkpoints", None, f"{_WORKER}: no save_total_limit"),
    fixed("schedule.evaluation_steps", None, f"{_WORKER}: the command gives no eval_steps"),
)


# ── what surrounds the loop ──────────────────────────────────────────────────────────────────────

_TRACKERS: Final = {"wandb": "logging.enable_wandb", "tensorboard": "logging.enable_tensorboard"}


def _write_trackers(plan: Plan) -> Mapping[str, Json]:
    """Write a switch for each of two trackers; others cannot be named."""
    if set(plan.runtime.report_to) - set(_TRACKERS):
        return {}
    return {key: name in plan.runtime.report_to for name, key in _TRACKERS.items()}


def _trackers(found: Mapping[str, Json]) -> Mapping[str, Any]:
    return {"runtime.report_to": tuple(n for n, key in _TRACKERS.items() if found.get(key))}


RUNTIME: Final = (
    _default("random_seed", "runtime.seed", 3407),
    same("training.output_dir", "runtime.output", _TRAINING),
    row(
        tuple(_TRACKERS.values()),
        ("runtime.report_to",),
        _write_trackers,
        _trackers,
        f"{_LOGGING}; {STUDIO} `_build_report_targets`",
        absent={"runtime.report_to": ()},
    ),
    fixed("runtime.neftune_alpha", None, f"{_WORKER}: no neftune_noise_alpha"),
    fixed(
        "runtime.dataloader_workers",
        0,
        f"{_WORKER}: as TrainingArguments has it, unless it tokenises while it trains "
        "(studio/backend/utils/datasets/online_tokenization.py `online_config_args`)",
    ),
    fixed("runtime.dataloader_pin_memory", True, f"{_WORKER}: as TrainingArguments has it"),
    fixed("precision.tf32", False, f"{_WORKER}: torch's own setting stays"),
)
