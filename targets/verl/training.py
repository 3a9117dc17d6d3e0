"""Rows of the sections `data` and `trainer` of the SFT trainer."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan, training_data
from tunec.compiler.target import Entry, Json, constant, derived, fixed, same
from tunec.targets.rows import in_steps, micro_batch, row
from tunec.targets.verl.packages import SOURCE

_YAML: Final = f"{SOURCE} trainer/config/sft_trainer_engine.yaml"
_LOOP: Final = f"{SOURCE} trainer/sft_trainer.py `SFTTrainer`"
_SAMPLES: Final = f"{SOURCE} utils/dataset/multiturn_sft_dataset.py `MultiTurnSFTDataset`"
_SPLITS: Final = f"{SOURCE} workers/engine/utils.py `prepare_micro_batches`"


# ── data and batches ─────────────────────────────────────────────────────────────────────────────


def read_files(value: Json) -> Mapping[str, Any]:
    """The parts of the training data: one path, or a list of them."""
    names = [value] if isinstance(value, str) else list(value or ())
    return {"data.train": names[0], "data.more": tuple(names[1:])} if names else {}


def _held_out(plan: Plan) -> Mapping[str, Json]:
    return {"data.val_files": plan.data.evaluation}


def _limits(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """No limit; so many that are drawn at random while it shuffles are no slot's value."""
    most = found["data.train_max_samples"]
    return {"data.limits": ()} if most is None or most < 1 else {}


def limits(source: str) -> Entry:
    """The row of the most samples, which are of all files together."""
    return row(
        ("data.train_max_samples",),
        ("data.limits",),
        lambda _: {},
        _limits,
        f"{source}: drawn at random where `data.shuffle` is on",
        absent={"data.limits": ()},
    )


DATA: Final = (
    limits(_SAMPLES),
    row(
        ("data.train_files",),
        ("data.train", "data.more"),
        lambda plan: {"data.train_files": [*training_data(plan)]},
        lambda found: read_files(found["data.train_files"]),
        f"{_SAMPLES} `read_files_and_process`: each by pandas, one after the other",
    ),
    row(
        ("data.val_files",),
        ("data.evaluation",),
        _held_out,
        lambda found: {"data.evaluation": found["data.val_files"]},
        f"{_LOOP} `_build_dataset`",
        absent={"data.evaluation": None},
    ),
    same("data.max_length", "data.sequence", _SAMPLES, default=1024),
    constant("data.truncation", "right", f"{_SAMPLES}: else a longer sample ends the run"),
    constant("data.pad_mode", "no_padding", f"{_SAMPLES}; `prepare_model_inputs` takes no other"),
    fixed("data.packing", value=False, source=f"{_SAMPLES}: a sample by itself"),
    same("data.train_batch_size", "batch.global", _YAML, default=256),
    constant("data.use_dynamic_bsz", False, f"{_SPLITS}: else by tokens and not by samples"),
    micro_batch("data.micro_batch_size_per_gpu", 4, f"{_YAML}; {_SPLITS}"),
    same("data.num_workers", "runtime.dataloader_workers", _YAML, default=8),
    fixed("runtime.dataloader_pin_memory", value=False, source=f"{_LOOP} `_build_dataloader`"),
)


# ── the loop ─────────────────────────────────────────────────────────────────────────────────────


def _write_length(plan: Plan) -> Mapping[str, Json]:
    """Write the length; a run in steps gets as many epochs, so that the steps end it."""
    epochs, steps = plan.schedule.epochs, plan.schedule.steps
    if epochs is None:
        return {"trainer.total_training_steps": steps, "trainer.total_epochs": steps}
    return {"trainer.total_epochs": int(epochs)} if epochs == int(epochs) else {}


def _read_length(found: Mapping[str, Json], usual: int) -> Mapping[str, Any]:
    epochs = found.get("trainer.total_epochs", usual)
    steps = found.get("trainer.total_training_steps")
    if not steps:
        return {"schedule.epochs": float(epochs)}
    return {"schedule.epochs": None, "schedule.steps": steps} if epochs >= steps else {}


_LENGTH: Final = ("trainer.total_epochs", "trainer.total_training_steps")
_EACH: Final = "after_each_epoch"


def _write_saving(plan: Plan) -> Mapping[str, Json]:
    return {"trainer.save_freq": plan.schedule.save_steps or _EACH}


def _read_saving(value: Json) -> Mapping[str, Any]:
    if value == _EACH:
        return {"schedule.save_steps": None}
    return {"schedule.save_steps": value} if isinstance(value, int) and value > 0 else {}


def read_evaluation(value: Json) -> Mapping[str, Any]:
    """The steps between evaluations; below 1 there are none."""
    if not isinstance(value, int):
        return {}
    return {"schedule.evaluation_steps": value if value > 0 else None}


_CONSOLE: Final = "console"
_TRACKERS: Final = (
    *("wandb", "mlflow", "swanlab", "vemlp_wandb", "tensorboard", "clearml", "trackio"),
)
"""utils/tracking.py `Tracking.supported_backend`."""


def _write_trackers(plan: Plan) -> Mapping[str, Json]:
    known = [each for each in plan.runtime.report_to if each in _TRACKERS]
    return {"trainer.logger": [_CONSOLE, *known]}


def _read_trackers(value: Json) -> Mapping[str, Any]:
    names = [value] if isinstance(value, str) else list(value or ())
    return {"runtime.report_to": tuple(each for each in names if each != _CONSOLE)}


def lasting(usual: int, source: str) -> tuple[Entry, ...]:
    """The rows of a run's length; `usual` is the number of epochs in verl's own file."""

    def read(found: Mapping[str, Json]) -> Mapping[str, Any]:
        return _read_length(found, usual)

    return (
        row(
            _LENGTH,
            ("schedule.epochs",),
            _write_length,
            read,
            source,
            absent={"schedule.epochs": float(usual)},
            when=lambda plan: not in_steps(plan),
        ),
        row(
            _LENGTH,
            ("schedule.epochs", "schedule.steps"),
            _write_length,
            read,
            f"{source}: epochs end it too",
            when=in_steps,
        ),
    )


def logging(usual: tuple[str, ...], source: str) -> tuple[Entry, ...]:
    """The rows of logging; `usual` are the trackers in verl's own file."""
    return (
        fixed("schedule.log_steps", 1, source),
        same("trainer.default_local_dir", "runtime.output", source),
        row(
            ("trainer.logger",),
            ("runtime.report_to",),
            _write_trackers,
            lambda found: _read_trackers(found["trainer.logger"]),
            source,
            absent={"runtime.report_to": usual},
        ),
        derived("trainer.project_name", lambda plan: plan.job.name, source),
        derived("trainer.experiment_name", lambda plan: plan.objective.kind, source),
    )


TRAINER: Final = (
    *lasting(4, f"{_LOOP} `_init_engine`, `fit`"),
    row(
        ("trainer.save_freq",),
        ("schedule.save_steps",),
        _write_saving,
        lambda found: _read_saving(found["trainer.save_freq"]),
        f"{_LOOP} `_init_engine`; the last step is saved too",
    ),
    row(
        ("trainer.test_freq",),
        ("schedule.evaluation_steps",),
        lambda plan: {"trainer.test_freq": plan.schedule.evaluation_steps or -1},
        lambda found: read_evaluation(found["trainer.test_freq"]),
        f"{_LOOP} `_init_engine`; held-out data is also run after the last step",
        absent={"schedule.evaluation_steps": None},
    ),
    same("trainer.max_ckpt_to_keep", "schedule.keep_checkpoints", _YAML, default=None),
    *logging(("wandb",), f"{_YAML}; {_LOOP} `fit`"),
)
