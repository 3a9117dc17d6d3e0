"""The batches, steps and epochs that a run counts on each of its ranks."""

import argparse
import contextlib
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

from tunec.targets.simpletuner.consumer.resolve import parse
from tunec.targets.simpletuner.consumer.surroundings import (
    Answer,
    Question,
    Refused,
    attempt,
    simpletuner,
    surroundings,
)


def count(question: Question) -> Answer:
    """What the trainer counts over `sets`, rank by rank.

    Each set has the sizes of its `buckets` of images of one shape, and `repeats`. `processes` is
    the number of ranks; the files are those of `resolve`. A rank's answer holds the `batches` and
    `updates` of an epoch, the `epochs` and the `steps` of the run, `by_epochs` (whether the run
    ends after the epochs, even if steps are left), `global` (images of a step) and `saves` (steps
    between checkpoints, or null).
    """
    with surroundings(question) as log:
        try:
            arguments = attempt("parse", log, lambda: parse(question))
            ranks = [
                attempt("count", log, lambda: _counted(arguments, question, rank))  # noqa: B023
                for rank in range(question["processes"])
            ]
        except Refused as refusal:
            return {"error": refusal.error, "log": list(log)}
    return {"ranks": ranks, "log": list(log)}


def _counted(arguments: argparse.Namespace, question: Question, rank: int) -> Answer:
    cls = simpletuner("helpers.training.trainer").Trainer
    trainer = cls.__new__(cls)
    config = trainer.config = argparse.Namespace(**vars(arguments))
    trainer.accelerator = _accelerator(question["processes"], rank)
    trainer.lr_scheduler = None
    with _dealt(config, trainer.accelerator, question["sets"]):
        trainer._recalculate_training_steps()  # noqa: SLF001
    return {
        "batches": config.total_num_batches,
        "updates": config.num_update_steps_per_epoch,
        "epochs": config.num_train_epochs,
        "steps": config.max_train_steps,
        "by_epochs": _ends_with_epochs(config),
        "global": config.total_batch_size,
        "saves": trainer._checkpoint_step_interval(),  # noqa: SLF001
    }


def _ends_with_epochs(config: argparse.Namespace) -> bool:
    """The flag as `Trainer.train` reads it: 4.5 replaced `ignore_final_epochs`."""
    strict = getattr(config, "strict_epoch_limit", None)
    return not config.ignore_final_epochs if strict is None else bool(strict)


def _accelerator(processes: int, rank: int) -> Any:
    """A stand-in for an accelerator: its rank, and accelerate's own split between processes."""
    from accelerate import PartialState

    state = SimpleNamespace(
        num_processes=processes,
        process_index=rank,
        is_main_process=rank == 0,
        is_local_main_process=rank == 0,
        distributed_type="NO",
    )
    state.split_between_processes = lambda inputs, apply_padding=False: (
        PartialState.split_between_processes(state, inputs, apply_padding)
    )
    return state


@contextlib.contextmanager
def _dealt(config: argparse.Namespace, accelerator: Any, sets: Any) -> Iterator[None]:
    """The data sets as the trainer sees them: their images are split among the ranks."""
    tracker = simpletuner("helpers.training.state_tracker").StateTracker
    backends = {f"set-{at}": _backend(f"set-{at}", each) for at, each in enumerate(sets)}
    with (
        mock.patch.object(tracker, "args", config),
        mock.patch.object(tracker, "data_backends", backends),
        mock.patch.object(
            tracker, "get_data_backend_config", lambda name: backends[name]["config"]
        ),
        # the order of the pictures says nothing of their number
        mock.patch.dict(os.environ, SIMPLETUNER_SHUFFLE_BUCKETS="0"),
    ):
        for each in backends.values():
            manager = each["metadata_backend"]
            manager.batch_size, manager.accelerator = config.train_batch_size, accelerator
            # helpers/data_backend/factory.py `_handle_bucket_operations` of both releases
            manager.split_buckets_between_processes(
                gradient_accumulation_steps=config.gradient_accumulation_steps,
                apply_padding=not config.max_train_steps,
            )
        yield


def _backend(name: str, asked: Any) -> dict[str, Any]:
    """A scanned data set: a real bucket manager with the given buckets."""
    cls = simpletuner("helpers.metadata.backends.discovery").DiscoveryMetadataBackend
    manager = cls.__new__(cls)
    manager.id, manager.repeats, manager.bucket_report = name, asked["repeats"], None
    manager.dataset_type, manager.read_only = "image", False
    manager.aspect_ratio_bucket_indices = {
        f"{at + 1}.0": [f"{name}-{at}-{picture}" for picture in range(size)]
        for at, size in enumerate(asked["buckets"])
    }
    config = {"repeats": asked["repeats"]} if asked["repeats"] else {}
    return {"id": name, "dataset_type": "image", "config": config, "metadata_backend": manager}
