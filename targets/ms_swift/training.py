"""Rows of TrainingArguments in ms-swift's file, whose releases are those of transformers.

Its classes have their own defaults: trainers/arguments.py `TrainArgumentsMixin`.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import ceil
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, Json, constant
from tunec.schemas.frozen import replace
from tunec.targets.huggingface import schedule, training
from tunec.targets.ms_swift.datasets import write_evaluation
from tunec.targets.ms_swift.packages import TRAINER
from tunec.targets.rows import if_decided, row

_SFT: Final = "ms-swift 4.0.4 to 4.6.0 arguments/sft_args.py `SftArguments`"
_OWN: Final = ("remove_unused_columns", "label_names")
"""Keys that it sets itself: arguments/sft_args.py `__post_init__`, trainers/mixin.py `__init__`."""
_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "per_device_train_batch_size": {"batch.micro": 1},
    "per_device_eval_batch_size": {"batch.evaluation": 1},
    "gradient_accumulation_steps": {},
    "weight_decay": {"optimizer.weight_decay": 0.1},
    "adam_beta2": {"optimizer.beta2": 0.95},
    "lr_scheduler_type": {"schedule.kind": "cosine"},
    "logging_steps": {"schedule.log_steps": 5},
    "output_dir": {},
    "dataloader_num_workers": {"runtime.dataloader_workers": 1},
    "report_to": {"runtime.report_to": ("tensorboard",)},
}
"""Defaults by a row's first key: trainers/arguments.py `TrainArgumentsMixin`, 16 samples in one
step without `gradient_accumulation_steps`; `SftArguments._init_override`: the folder is named by
the model."""


_LEAST: Final = 16
"""The default number of samples in an optimizer step: ms-swift 4.0.4 to 4.6.0 trainers/arguments.py
`TrainArgumentsMixin.__post_init__`."""


def accumulated(known: Callable[[str], Any]) -> Mapping[str, Any]:
    """The default number of micro batches; GRPO has one (arguments/rlhf_args.py)."""
    kind, micro, world = map(known, ("objective.kind", "batch.micro", "parallel.world"))
    if kind == "grpo":
        return {"batch.accumulation": 1}
    if not (isinstance(micro, int) and isinstance(world, int) and micro * world > 0):
        return {}
    return {"batch.accumulation": max(1, ceil(_LEAST / (micro * world)))}


_DATA_KEYS: Final = ("val_dataset", "split_dataset_ratio")
_SAVING: Final = ("save_strategy", "save_steps")


def _evaluation(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The steps between evaluations: none without data, by default those between checkpoints."""
    word = next(
        (found[key] for key in ("eval_strategy", "evaluation_strategy") if found.get(key)),
        found.get("save_strategy") or "steps",
    )
    if word == "no" or not any(found.get(key) for key in _DATA_KEYS):
        return {"schedule.evaluation_steps": None}
    steps = found.get("eval_steps") or found.get("save_steps") or 500
    return {"schedule.evaluation_steps": steps} if word == "steps" else {}


def _write_evaluation(row: Entry, plan: Plan) -> Mapping[str, Json]:
    """Write the steps and the data of evaluation; without data there is none."""
    return {**row.write(plan), **if_decided(write_evaluation, plan)}


def _evaluating() -> Iterator[Entry]:
    """The rows of evaluation, with ms-swift's defaults."""
    others = (*_DATA_KEYS, *_SAVING)
    source = f"{_SFT} `__post_init__`, `_init_eval_strategy`"
    for each in schedule.EVALUATION:
        yield replace(
            each,
            keys=(*each.keys, *others),
            write=partial(_write_evaluation, each),
            read=_evaluation,
            source=source,
            beside=others,
        )


def trainer_rows() -> Iterator[Entry]:
    """The rows of TrainingArguments, with ms-swift's defaults."""
    rows = (
        *training.BATCH,
        *training.OPTIMIZER,
        *schedule.LENGTH,
        *schedule.WARMUP,
        *schedule.LOGGING,
        schedule.LOG_STEPS,
        *schedule.SAVING,
        *_evaluating(),
        *training.RUNTIME,
    )
    for each in rows:
        if {*each.keys} & {*_OWN}:
            continue
        own = _DEFAULTS.get(each.keys[0])
        absent = each.absent if own is None else ((ALWAYS, own),)
        yield replace(each, package=each.package or TRAINER, absent=absent)


def _rate(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The learning rate; the default depends on what is trained."""
    usual = 1e-5 if found.get("tuner_type") == "full" else 1e-4
    said = found.get("learning_rate")
    return {"optimizer.learning_rate": usual if said is None else said}


TRAINING: Final = (
    row(
        ("learning_rate", "tuner_type"),
        ("optimizer.learning_rate",),
        lambda plan: {"learning_rate": plan.optimizer.learning_rate},
        _rate,
        f"{_SFT} `_init_override`",
        absent=_rate({}),
    ),
    constant("add_version", False, f"{_SFT}: else a folder of its own below output_dir"),
    *trainer_rows(),
)
