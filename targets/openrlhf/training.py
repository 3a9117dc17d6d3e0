"""Rows of OpenRLHF's flags: batches, optimizer, learning rate, length, and the rest of the loop."""

import math
from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Entry, Json, derived, fixed, named, same
from tunec.targets.openrlhf.packages import SOURCE
from tunec.targets.rows import micro_batch, rises_over_a_share, row, whole_epochs

_FLAGS: Final = f"{SOURCE} cli/train_sft.py, cli/train_dpo.py"
_STRATEGY: Final = f"{SOURCE} utils/deepspeed/deepspeed.py `DeepspeedStrategy`"
_MAKES: Final = f"{_STRATEGY} `_ds_init_train_model`"


# ── batches ──────────────────────────────────────────────────────────────────────────────────────

BATCH: Final = (
    micro_batch("train.micro_batch_size", 8, f"{_FLAGS}: the loader of evaluation too"),
    same("train.batch_size", "batch.global", _FLAGS, default=128),
)


# ── optimizer ────────────────────────────────────────────────────────────────────────────────────

_RATES: Final = ("adam.lr", "muon.lr", "optim")


def _write_rate(plan: Plan) -> Mapping[str, Json]:
    """Write the learning rate, for Muon also that of its AdamW."""
    rate = plan.optimizer.learning_rate
    return {"adam.lr": rate, **({"muon.lr": rate} if plan.optimizer.name == "muon" else {})}


def _rate(found: Mapping[str, Json], usual: float) -> Mapping[str, Any]:
    """The learning rate; two different ones have no slot value."""
    rate = found.get("adam.lr", usual)
    is_one = found.get("optim", "adam") == "adam" or found.get("muon.lr", 0.02) == rate
    return {"optimizer.learning_rate": rate} if is_one else {}


def _betas(found: Mapping[str, Json]) -> Mapping[str, Any]:
    first, second = found["adam.betas"]
    return {"optimizer.beta1": first, "optimizer.beta2": second}


def _on_device(plan: Plan) -> bool:
    return plan.zero.offload_optimizer == "none"


def optimizer(usual: float) -> tuple[Entry, ...]:
    """The rows of the optimizer, for a program with that default learning rate."""
    return (
        named(
            "optim", "optimizer.name", {"adamw": "adam", "muon": "muon"}, _MAKES, default="adamw"
        ),
        fixed("optimizer.kernel", "own", f"{_MAKES}: DeepSpeed builds it", when=_on_device),
        row(
            _RATES,
            ("optimizer.learning_rate",),
            _write_rate,
            lambda found: _rate(found, usual),
            _FLAGS,
            absent={"optimizer.learning_rate": usual},
        ),
        row(
            ("adam.betas",),
            ("optimizer.beta1", "optimizer.beta2"),
            lambda plan: {"adam.betas": [plan.optimizer.beta1, plan.optimizer.beta2]},
            _betas,
            _MAKES,
            absent={"optimizer.beta1": 0.9, "optimizer.beta2": 0.95},
        ),
        same("adam.eps", "optimizer.epsilon", _MAKES, default=1e-8),
        same("adam.weight_decay", "optimizer.weight_decay", _MAKES, default=0.0),
        same("max_norm", "optimizer.max_grad_norm", _MAKES, default=1.0),
    )


# ── length and rate ──────────────────────────────────────────────────────────────────────────────

_KIND: Final = "lr_scheduler"
_LEAST: Final = "min_lr_ratio"
_WITH_LEAST: Final = ("cosine_with_min_lr", "cosine_warmup_with_min_lr")
_ARGUMENT: Final = "min_lr_rate"
_SHARE: Final = "lr_warmup_ratio"


def _write_kind(plan: Plan) -> Mapping[str, Json]:
    kind, arguments = plan.schedule.kind, dict(plan.schedule.arguments)
    if kind not in _WITH_LEAST:
        return {_KIND: kind}
    return {_KIND: kind, **({_LEAST: arguments[_ARGUMENT]} if {*arguments} == {_ARGUMENT} else {})}


def _kind(found: Mapping[str, Json]) -> Mapping[str, Any]:
    kind = found.get(_KIND, "cosine_with_min_lr")
    least = ((_ARGUMENT, found.get(_LEAST, 0.1)),) if kind in _WITH_LEAST else ()
    return {"schedule.kind": kind, "schedule.arguments": least}


def totals(plan: Plan) -> tuple[int, ...]:
    """The total steps that a program's schedule may use: the actual ones, or those of whole epochs.

    cli/train_dpo.py, and cli/train_sft.py before 0.11.2, drop the rest of each epoch.
    """
    steps, samples, epochs = plan.schedule.steps, plan.data.samples, plan.schedule.epochs
    if steps is None:
        return ()
    whole = () if samples is None or epochs is None else (samples // plan.batch.global_,)
    return (steps, *(int(epochs or 0) * each for each in whole))


def share_of(warmup: int, totals: tuple[int, ...]) -> float | None:
    """The shortest share that results in the warmup steps by `math.ceil`; None if there is none."""
    total = max(totals, default=0)
    if not warmup or not total:
        return 0.0 if total else None
    for digits in range(1, 17):
        share = round((warmup - 0.5) / total, digits)
        if all(math.ceil(each * share) == warmup for each in totals):
            return share
    return None


def _write_warmup(plan: Plan) -> Mapping[str, Json]:
    schedule = plan.schedule
    if schedule.warmup_share is not None:
        return {_SHARE: schedule.warmup_share}
    share = share_of(schedule.warmup_steps or 0, totals(plan))
    return {} if share is None else {_SHARE: share}


def schedule(epochs: int) -> tuple[Entry, ...]:
    """The rows of length and schedule, for a program with that default number of epochs."""
    return (
        row(
            ("train.max_epochs",),
            ("schedule.epochs",),
            whole_epochs("train.max_epochs"),
            lambda found: {"schedule.epochs": float(found["train.max_epochs"])},
            _FLAGS,
            absent={"schedule.epochs": float(epochs)},
        ),
        row(
            (_KIND, _LEAST),
            ("schedule.kind", "schedule.arguments"),
            _write_kind,
            _kind,
            f"{_MAKES}: transformers' get_scheduler gets the minimum rate for these two alone",
            absent=_kind({}),
        ),
        row(
            (_SHARE,),
            ("schedule.warmup_share",),
            _write_warmup,
            lambda found: {"schedule.warmup_share": found[_SHARE]},
            f"{_MAKES}: the next whole number of the steps' share",
            absent={"schedule.warmup_share": 0.03},
            when=rises_over_a_share,
        ),
        derived(
            _SHARE,
            lambda plan: _write_warmup(plan).get(_SHARE),
            f"{_MAKES}: math.ceil",
            when=lambda plan: not rises_over_a_share(plan),
        ),
    )


# ── what surrounds the loop ──────────────────────────────────────────────────────────────────────

_SAVES: Final = "ckpt.save_steps"
_LOGS: Final = f"{SOURCE} trainer/sft_trainer.py, trainer/dpo_trainer.py"
_WANDB: Final = "logger.wandb.key"
_BOARD: Final = "logger.tensorboard_dir"
FROM_ENVIRONMENT: Final = "WANDB_API_KEY"
"""A placeholder for the API key, which is only needed if wandb has none."""


def _write_saving(plan: Plan) -> Mapping[str, Json]:
    steps = plan.schedule.save_steps
    return {} if steps is None else {_SAVES: steps}


def _trackers(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The trackers: with wandb, TensorBoard is not used."""
    if found.get(_WANDB):
        return {"runtime.report_to": ("wandb",)}
    return {"runtime.report_to": ("tensorboard",) if found.get(_BOARD) else ()}


def _write_trackers(plan: Plan) -> Mapping[str, Json]:
    folder = f"{plan.runtime.output}/logs"
    keys: Mapping[tuple[str, ...], Mapping[str, Json]] = {
        ("wandb",): {_WANDB: FROM_ENVIRONMENT},
        ("tensorboard",): {_BOARD: folder},
    }
    return keys.get(plan.runtime.report_to, {})


RUN: Final = (
    row(
        (_SAVES,),
        ("schedule.save_steps",),
        _write_saving,
        lambda found: {"schedule.save_steps": found[_SAVES]} if found[_SAVES] > 0 else {},
        f"{_LOGS} `save_logs_and_checkpoints`; absent, none before the end",
    ),
    same("ckpt.max_num", "schedule.keep_checkpoints", _STRATEGY, default=3),
    derived("ckpt.path", lambda plan: f"{plan.runtime.output}/checkpoints", _FLAGS),
    same("ckpt.output_dir", "runtime.output", _FLAGS, default="./ckpt"),
    same("logger.logging_steps", "schedule.log_steps", _LOGS, default=1),
    row(
        (_WANDB, _BOARD),
        ("runtime.report_to",),
        _write_trackers,
        _trackers,
        f"{_LOGS}: wandb.login only without a key that wandb knows",
        absent={"runtime.report_to": ()},
    ),
    same("train.seed", "runtime.seed", _FLAGS, default=42),
    same("data.dataloader_num_workers", "runtime.dataloader_workers", _FLAGS, default=0),
    fixed("runtime.dataloader_pin_memory", value=True, source=_FLAGS),
)
