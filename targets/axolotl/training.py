"""Rows of Axolotl's YAML for batch, optimizer, schedule, saving and evaluation."""

from collections.abc import Mapping
from typing import Any, Final, get_args

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import (
    Entry,
    Json,
    Phrase,
    derived,
    fixed,
    in_every_plan,
    named,
    same,
)
from tunec.schemas.frozen import replace
from tunec.schemas.terms import ScheduleKind
from tunec.targets.axolotl.data import write_evaluation
from tunec.targets.axolotl.packages import WRITTEN
from tunec.targets.huggingface.schedule import write_arguments, write_saving
from tunec.targets.huggingface.training import OPTIMIZER as TRAINER_OPTIMIZER
from tunec.targets.rows import (
    if_decided,
    in_epochs,
    is_rewarded,
    leaves_parts_unused,
    rises_over_a_share,
    row,
)

_SCHEMA: Final = "axolotl 0.8.1 to 0.19.0 utils/schemas/training.py `HyperparametersConfig`"
_BUILDER: Final = "core/builders/base.py `TrainerBuilderBase`, before 0.10 core/trainer_builder.py"
_ARGUMENTS: Final = (
    f"axolotl 0.8.1 to 0.19.0 {_BUILDER}: passed on where set, else what TrainingArguments has"
)


def _batch(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The batch. If accumulation is null, it follows from `batch_size`, which is per process."""
    micro = found.get("micro_batch_size", 1)
    steps = found.get("gradient_accumulation_steps", 1)
    if not steps and found.get("batch_size"):
        steps = found["batch_size"] // micro
    return {"batch.micro": micro, **({"batch.accumulation": steps} if steps else {})}


BATCH: Final = (
    row(
        ("micro_batch_size", "gradient_accumulation_steps", "batch_size"),
        ("batch.micro", "batch.accumulation"),
        lambda plan: {
            "micro_batch_size": plan.batch.micro,
            "gradient_accumulation_steps": plan.batch.accumulation,
        },
        _batch,
        f"{_SCHEMA}; utils/config/__init__.py `normalize_config`",
        absent={"batch.micro": 1, "batch.accumulation": 1},
    ),
    row(
        ("eval_batch_size", "micro_batch_size"),
        ("batch.evaluation",),
        lambda plan: {"eval_batch_size": plan.batch.evaluation},
        lambda found: {
            "batch.evaluation": found.get("eval_batch_size") or found.get("micro_batch_size", 1)
        },
        "axolotl 0.8.1 to 0.19.0 utils/config/__init__.py `normalize_config`: null is micro batch",
        absent={"batch.evaluation": 1},
    ),
)


def _renamed(said: Mapping[str, Json]) -> Mapping[str, Json]:
    return {"optimizer": said["optim"]} if said else {}


def _optimizer(by: Entry) -> Entry:
    """A row of the Trainer's `optim` under Axolotl's name."""
    return row(
        ("optimizer",),
        by.slots,
        lambda plan: _renamed(by.write(plan)),
        lambda found: by.read({"optim": found["optimizer"]}),
        f"{_SCHEMA}: the words of transformers' `OptimizerNames`, and its own, which no slot has",
        absent=_FUSED if _FUSED.keys() == {*by.slots} else None,
        when=by.when,
    )


_FUSED: Final = {"optimizer.name": "adamw", "optimizer.kernel": "fused"}
_BY_WORD: Final = tuple(each for each in TRAINER_OPTIMIZER if each.keys == ("optim",))
OPTIMIZER: Final = (
    *map(_optimizer, _BY_WORD),
    row(
        ("learning_rate",),
        ("optimizer.learning_rate",),
        lambda plan: {"learning_rate": plan.optimizer.learning_rate},
        lambda found: {"optimizer.learning_rate": float(found["learning_rate"])},
        f"{_SCHEMA} `convert_learning_rate`: text is made a number",
    ),
    *(
        replace(each, source=_ARGUMENTS, when=in_every_plan)  # read beside any optimizer
        for each in TRAINER_OPTIMIZER
        if each not in _BY_WORD
    ),
)


# ── how long, and when what is written ───────────────────────────────────────────────────────────


def _length(found: Mapping[str, Json]) -> Mapping[str, Any]:
    steps = found.get("max_steps")
    is_set = isinstance(steps, int) and steps > 0
    if is_set:
        return {"schedule.epochs": None, "schedule.steps": steps}
    return {"schedule.epochs": found.get("num_epochs", 1.0)}


SHORTEST_WARMUP: Final = 2
"""Axolotl makes two steps of one: core/builders/base.py `_configure_warmup_and_logging`."""


def _warmup(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The warm-up in steps, two instead of one, or as a share of all steps."""
    steps, share = found.get("warmup_steps"), found.get("warmup_ratio")
    if steps is not None:
        rise = SHORTEST_WARMUP if steps == 1 else steps
        return {"schedule.warmup_steps": rise, "schedule.warmup_share": None}
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
    """How many checkpoints and evaluations a run has, from the numbers per epoch; at least one."""
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


def _write_length(plan: Plan) -> Mapping[str, Json]:
    if plan.schedule.epochs is not None:
        return {"num_epochs": plan.schedule.epochs}
    return {} if plan.schedule.steps is None else {"max_steps": plan.schedule.steps}


def _write_warmup(plan: Plan) -> Mapping[str, Json]:
    if _keeps_its_share(plan):
        return {"warmup_ratio": plan.schedule.warmup_share}
    return {"warmup_steps": plan.schedule.warmup_steps}


def _rises_over_steps(plan: Plan) -> bool:
    """Whether a share of the steps is written in steps: Axolotl takes it of those of one epoch.

    That is so for pairs whatever `max_steps` is, and for texts where `max_steps` are more: axolotl
    0.13.2 to 0.19.0 common/datasets.py `load_preference_datasets`, utils/data/sft.py.
    """
    return rises_over_a_share(plan) and not _keeps_its_share(plan)


def _keeps_its_share(plan: Plan) -> bool:
    """Whether a share of the steps is written as one."""
    return rises_over_a_share(plan) and (in_epochs(plan) or is_rewarded(plan))


def _write_evaluation(plan: Plan) -> Mapping[str, Json]:
    """When to evaluate; without evaluation data nothing, because Axolotl refuses both keys then."""
    steps = plan.schedule.evaluation_steps
    if steps is None:
        return {}
    told = {"eval_strategy": "steps", "eval_steps": steps}
    return {**if_decided(write_evaluation, plan), **told}


def _evaluates(plan: Plan) -> bool:
    return plan.schedule.evaluation_steps is not None


_LENGTH_KEYS: Final = ("num_epochs", "max_steps")
_LENGTH: Final = row(
    _LENGTH_KEYS,
    ("schedule.epochs",),
    _write_length,
    _length,
    f"{_SCHEMA}; {_BUILDER}: max_steps wins",
    absent={"schedule.epochs": 1.0},
    when=in_epochs,
)
_WARMUP: Final = row(
    ("warmup_steps", "warmup_ratio"),
    ("schedule.warmup_steps", "schedule.warmup_share"),
    _write_warmup,
    _warmup,
    f"axolotl 0.8.1 to 0.19.0 {_BUILDER}: absent, 3 % of all steps and at most 100",
    when=lambda plan: not rises_over_a_share(plan),
)
_ALL: Final = 1_000_000
"""More checkpoints than a run creates: Axolotl keeps four if none is given."""


def _read_kept(found: Mapping[str, Json]) -> Mapping[str, Any]:
    kept = found["save_total_limit"] or 4
    return {"schedule.keep_checkpoints": None if kept == _ALL else kept}


SCHEDULE: Final = (
    _LENGTH,
    replace(
        _LENGTH, slots=("schedule.epochs", "schedule.steps"), when=lambda plan: not in_epochs(plan)
    ),
    named(
        "lr_scheduler",
        "schedule.kind",
        {kind: kind for kind in get_args(ScheduleKind)},
        f"{_SCHEMA}: the words of transformers' `SchedulerType`, and two of its own",
        default="cosine",
    ),
    row(
        ("lr_scheduler_kwargs",),
        ("schedule.arguments",),
        write_arguments,
        lambda found: {"schedule.arguments": tuple((found["lr_scheduler_kwargs"] or {}).items())},
        f"axolotl 0.8.1 to 0.19.0 {_BUILDER} `_configure_scheduler`",
        absent={"schedule.arguments": ()},
    ),
    _WARMUP,
    replace(_WARMUP, slots=("schedule.warmup_steps",), when=_rises_over_steps),
    replace(
        _WARMUP,
        slots=("schedule.warmup_share",),
        when=_keeps_its_share,
    ),
    same(
        "logging_steps",
        "schedule.log_steps",
        f"axolotl {_BUILDER}: absent, it follows from the length",
    ),
    row(
        ("save_steps", "save_strategy", "saves_per_epoch"),
        ("schedule.save_steps",),
        write_saving,
        _saving,
        f"axolotl 0.8.1 to 0.19.0 {_BUILDER}: save_steps wins, and absent it is each epoch",
        absent={"schedule.save_steps": None},
    ),
    row(
        ("save_total_limit",),
        ("schedule.keep_checkpoints",),
        lambda plan: {"save_total_limit": plan.schedule.keep_checkpoints or _ALL},
        _read_kept,
        f"axolotl 0.8.1 to 0.19.0 {_BUILDER}: `if ... else 4`",
        absent={"schedule.keep_checkpoints": 4},
    ),
    row(
        ("eval_steps", "evals_per_epoch", "eval_strategy", "val_set_size", "test_datasets"),
        ("schedule.evaluation_steps",),
        _write_evaluation,
        _evaluation,
        f"axolotl 0.8.1 to 0.19.0 {_BUILDER}: none without evaluation data",
        absent={"schedule.evaluation_steps": None},
    ),
    derived(
        "load_best_model_at_end",
        lambda _: False,
        "axolotl 0.13.2 to 0.19.0 core/builders/causal.py `build`: absent, on where both are in "
        "steps and the one is a multiple of the other",
        since=WRITTEN,
        when=_evaluates,
    ),
    derived(
        "ddp_find_unused_parameters",
        lambda plan: True if plan.parallel.engine == "ddp" and leaves_parts_unused(plan) else None,
        "axolotl 0.8.1 to 0.19.0 core/builders/causal.py `build`: absent, it is off",
    ),
)

_TRACKERS: Final = {
    "use_wandb": "wandb",
    "use_mlflow": "mlflow",
    "use_tensorboard": "tensorboard",
    "use_comet": "comet_ml",
    "use_trackio": "trackio",
}


def _write_trackers(plan: Plan) -> Mapping[str, Json]:
    return {key: True for key, name in _TRACKERS.items() if name in plan.runtime.report_to}


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
        default="./model-out",
    ),
    same("seed", "runtime.seed", _ARGUMENTS, default=42),
    same("neftune_noise_alpha", "runtime.neftune_alpha", _ARGUMENTS, default=None),
    same("dataloader_num_workers", "runtime.dataloader_workers", _ARGUMENTS),
    same("dataloader_pin_memory", "runtime.dataloader_pin_memory", _ARGUMENTS),
    row(
        tuple(_TRACKERS),
        ("runtime.report_to",),
        _write_trackers,
        _trackers,
        f"axolotl 0.8.1 to 0.19.0 {_BUILDER} `_configure_reporting`",
        absent={"runtime.report_to": ()},
    ),
)
