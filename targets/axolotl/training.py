"""Rows of Axolotl's YAML: batch, optimizer, schedule, saving, evaluation."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.target import ALWAYS, Json, Phrase, fixed, same
from tunec.targets.huggingface.training import OPTIMIZER as TRAINER_OPTIMIZER
from tunec.targets.read_only import named_word, observed

_SCHEMA: Final = "axolotl 0.8.1 to 0.19.0 utils/schemas/training.py `HyperparametersConfig`"
_BUILDER: Final = "core/builders/base.py `TrainerBuilderBase`, before 0.10 core/trainer_builder.py"
_ARGUMENTS: Final = (
    f"axolotl 0.8.1 to 0.19.0 {_BUILDER}: passed on where set, else what TrainingArguments has"
)


def _batch(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """`batch_size` of one process stands for accumulation where that is null."""
    micro = found.get("micro_batch_size", 1)
    steps = found.get("gradient_accumulation_steps", 1)
    if not steps and found.get("batch_size"):
        steps = found["batch_size"] // micro
    return {"batch.micro": micro, **({"batch.accumulation": steps} if steps else {})}


BATCH: Final = (
    observed(
        ("micro_batch_size", "gradient_accumulation_steps", "batch_size"),
        ("batch.micro", "batch.accumulation"),
        _batch,
        f"{_SCHEMA}; utils/config/__init__.py `normalize_config`",
        absent={"batch.micro": 1, "batch.accumulation": 1},
    ),
    observed(
        ("eval_batch_size", "micro_batch_size"),
        ("batch.evaluation",),
        lambda found: {
            "batch.evaluation": found.get("eval_batch_size") or found.get("micro_batch_size", 1)
        },
        "axolotl 0.8.1 to 0.19.0 utils/config/__init__.py `normalize_config`: null is micro batch",
        absent={"batch.evaluation": 1},
    ),
)


def _optimizer(found: Mapping[str, Json]) -> Mapping[str, Any]:
    return TRAINER_OPTIMIZER[0].read({"optim": found["optimizer"]})


OPTIMIZER: Final = (
    observed(
        ("optimizer",),
        ("optimizer.name", "optimizer.kernel"),
        _optimizer,
        f"{_SCHEMA}: the words of transformers' `OptimizerNames`, and its own, which no slot has",
        absent={"optimizer.name": "adamw", "optimizer.kernel": "fused"},
    ),
    observed(
        ("learning_rate",),
        ("optimizer.learning_rate",),
        lambda found: {"optimizer.learning_rate": float(found["learning_rate"])},
        f"{_SCHEMA} `convert_learning_rate`: text is made a number",
    ),
    same("weight_decay", "optimizer.weight_decay", _SCHEMA, absent=((ALWAYS, 0.0),)),
    same("adam_beta1", "optimizer.beta1", _ARGUMENTS, absent=((ALWAYS, 0.9),)),
    same("adam_beta2", "optimizer.beta2", _ARGUMENTS, absent=((ALWAYS, 0.999),)),
    same("adam_epsilon", "optimizer.epsilon", _ARGUMENTS, absent=((ALWAYS, 1e-8),)),
    same("max_grad_norm", "optimizer.max_grad_norm", _ARGUMENTS, absent=((ALWAYS, 1.0),)),
)


# ── how long, and when what is written ───────────────────────────────────────────────────────────


def _length(found: Mapping[str, Json]) -> Mapping[str, Any]:
    steps = found.get("max_steps")
    is_set = isinstance(steps, int) and steps > 0
    if is_set:
        return {"schedule.epochs": None, "schedule.steps": steps}
    return {"schedule.epochs": found.get("num_epochs", 1.0)}


def _warmup(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """Steps, of which a single one is made two, or a share of all."""
    steps, share = found.get("warmup_steps"), found.get("warmup_ratio")
    if steps is not None:
        return {"schedule.warmup_steps": 2 if steps == 1 else steps, "schedule.warmup_share": None}
    return {"schedule.warmup_share": share} if share else {}


def _saving(found: Mapping[str, Json]) -> Mapping[str, Any]:
    steps = found.get("save_steps")
    if steps or found.get("saves_per_epoch"):
        return {"schedule.save_steps": steps} if steps and steps >= 1 else {}
    strategy = found.get("save_strategy") or "epoch"
    return {"schedule.save_steps": None} if strategy == "epoch" else {}


def _evaluation(found: Mapping[str, Json]) -> Mapping[str, Any]:
    has_data = bool(found.get("val_set_size")) or bool(found.get("test_datasets"))
    if not has_data:
        return {"schedule.evaluation_steps": None}
    steps = found.get("eval_steps")
    return {"schedule.evaluation_steps": steps} if steps and steps >= 1 else {}


def _times(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """How many times over the run, which a number an epoch comes to; under one it is at the end."""
    epochs = found.get("num_epochs") or 1
    said = {"train.checkpoints": found.get("saves_per_epoch")}
    if found.get("val_set_size") or found.get("test_datasets"):
        by_epoch = 1 if found.get("eval_strategy") == "epoch" else None
        said["train.evaluations"] = found.get("evals_per_epoch", by_epoch)
    return {name: max(1, round(each * epochs)) for name, each in said.items() if each}


TIMES: Final = Phrase(
    ("saves_per_epoch", "evals_per_epoch", "eval_strategy"),
    _times,
    "axolotl 0.19.0 utils/config/__init__.py: save_steps = 1.0 / (saves_per_epoch * num_epochs)",
    beside=("num_epochs", "val_set_size", "test_datasets"),
)

_KINDS: Final = {kind: kind for kind in ("constant", "constant_with_warmup", "linear", "cosine")}

SCHEDULE: Final = (
    observed(
        ("num_epochs", "max_steps"),
        ("schedule.epochs", "schedule.steps"),
        _length,
        f"{_SCHEMA}; {_BUILDER}: max_steps wins",
        absent={"schedule.epochs": 1.0},
    ),
    observed(
        ("lr_scheduler",),
        ("schedule.kind",),
        named_word(_KINDS, "lr_scheduler", "schedule.kind"),
        _SCHEMA,
        absent={"schedule.kind": "cosine"},
    ),
    observed(
        ("warmup_steps", "warmup_ratio"),
        ("schedule.warmup_steps", "schedule.warmup_share"),
        _warmup,
        f"axolotl 0.8.1 to 0.19.0 {_BUILDER}: absent, 3 % of all steps and at most 100",
    ),
    same(
        "logging_steps",
        "schedule.log_steps",
        f"axolotl {_BUILDER}: absent, it follows from the length",
    ),
    observed(
        ("save_steps", "save_strategy", "saves_per_epoch"),
        ("schedule.save_steps",),
        _saving,
        f"axolotl 0.8.1 to 0.19.0 {_BUILDER}: save_steps wins, and absent it is each epoch",
        absent={"schedule.save_steps": None},
    ),
    observed(
        ("save_total_limit",),
        ("schedule.keep_checkpoints",),
        lambda found: {"schedule.keep_checkpoints": found["save_total_limit"] or 4},
        f"axolotl 0.8.1 to 0.19.0 {_BUILDER}: `if ... else 4`",
        absent={"schedule.keep_checkpoints": 4},
    ),
    observed(
        ("eval_steps", "evals_per_epoch", "eval_strategy", "val_set_size", "test_datasets"),
        ("schedule.evaluation_steps",),
        _evaluation,
        f"axolotl 0.8.1 to 0.19.0 {_BUILDER}: none without evaluation data",
        absent={"schedule.evaluation_steps": None},
    ),
)

_TRACKERS: Final = {
    "use_wandb": "wandb",
    "use_mlflow": "mlflow",
    "use_tensorboard": "tensorboard",
    "use_comet": "comet_ml",
    "use_trackio": "trackio",
}


def _trackers(found: Mapping[str, Json]) -> Mapping[str, Any]:
    return {"runtime.report_to": tuple(_TRACKERS[key] for key in _TRACKERS if found.get(key))}


RUNTIME: Final = (
    fixed(
        "evaluation.predictions",
        "loss",
        f"axolotl 0.8.1 to 0.19.0 {_BUILDER}: answers are written by a callback alone",
    ),
    same(
        "output_dir",
        "runtime.output",
        "axolotl 0.8.1 to 0.19.0 utils/schemas/model.py `ModelOutputConfig`",
        absent=((ALWAYS, "./model-out"),),
    ),
    same("seed", "runtime.seed", _ARGUMENTS, absent=((ALWAYS, 42),)),
    same("neftune_noise_alpha", "runtime.neftune_alpha", _ARGUMENTS, absent=((ALWAYS, None),)),
    same("dataloader_num_workers", "runtime.dataloader_workers", _ARGUMENTS),
    same("dataloader_pin_memory", "runtime.dataloader_pin_memory", _ARGUMENTS),
    observed(
        tuple(_TRACKERS),
        ("runtime.report_to",),
        _trackers,
        f"axolotl 0.8.1 to 0.19.0 {_BUILDER} `_configure_reporting`",
        absent={"runtime.report_to": ()},
    ),
)
