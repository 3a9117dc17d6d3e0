"""The settings that Unsloth's own command reads from a YAML, before a model is loaded."""

import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from tunec.compiler.consumers.json_types import plain
from tunec.compiler.consumers.refusal import Refused, stage
from tunec.compiler.consumers.workplace import workplace
from tunec.targets.unsloth.consumer.names import loaded, within

_FILE: Final = "unsloth.yaml"


def resolve(question: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that `unsloth train` passes to its trainer.

    In: `yaml`, and `images`, whether the command finds images in the data. Out: `version`;
    `refused` (None, or stage, type and message); `values` of all keys, by section; `calls`, the
    arguments of each call of the trainer, by its method; `loaded`, the repository that is loaded
    for the name.
    """
    answer: dict[str, Any] = {
        "version": version("unsloth"),
        "refused": None,
        "values": {},
        "calls": {},
        "loaded": None,
    }
    try:
        with workplace({_FILE: question["yaml"]}):
            _fill(answer, images=question.get("images", False))
    except Refused as refused:
        answer["refused"] = refused.told()
    return answer


def _fill(answer: dict[str, Any], *, images: bool) -> None:
    """Fill the answer as far as the program runs, then raise the error that stopped it."""
    config: Any = importlib.import_module("unsloth_cli.config")
    command: Any = importlib.import_module("unsloth_cli.commands.train")
    with stage("parse"):
        found = config.load_config(Path(_FILE))
    answer["values"] = plain(found.model_dump(mode="json"))
    trainer = _Trainer(images)
    with _hearing(command, trainer), stage("train"):
        command.train(config=Path(_FILE), hf_token=None, wandb_token=None, dry_run=False)
    answer["calls"] = plain(trainer.calls)
    told = trainer.calls["load_model"]
    answer["loaded"] = loaded(told["model_name"], in_four_bits=told["load_in_4bit"])


class _Trainer:
    """A stand-in for the trainer of the studio's backend, which stores its arguments."""

    training_thread = None

    def __init__(self, images: bool) -> None:
        self.is_vlm = images
        self.calls: dict[str, dict[str, Any]] = {}

    def _keep(self, name: str, told: dict[str, Any]) -> bool:
        self.calls[name] = {key: each for key, each in told.items() if "token" not in key}
        return True

    def load_model(self, **told: Any) -> bool:
        return self._keep("load_model", told)

    def prepare_model_for_training(self, **told: Any) -> bool:
        return self._keep("prepare_model_for_training", told)

    def load_and_format_dataset(self, **told: Any) -> tuple[None, None]:
        self._keep("load_and_format_dataset", told)
        return None, None

    def start_training(self, dataset: Any, eval_dataset: Any, **told: Any) -> bool:
        """Start as `_train_worker` does: the output directory must be below Unsloth's own."""
        del dataset, eval_dataset
        paths: Any = importlib.import_module("utils.paths")
        paths.resolve_output_dir(told["output_dir"])
        return self._keep("start_training", told)

    def get_training_progress(self) -> None:
        """Training has ended without an error."""


@contextmanager
def _hearing(command: Any, trainer: _Trainer) -> Iterator[None]:
    """The command with a stand-in trainer, and without reading the data."""
    backend = str(within("studio/backend"))
    stands = {
        "_create_cli_trainer": lambda *_: trainer,
        "_dataset_modalities": lambda *_: (trainer.is_vlm, False),
        "_optimizer_for_host": lambda *_: _default_optimizer(),
    }
    with ExitStack() as stack:
        stack.enter_context(patch.object(sys, "path", [backend, *sys.path]))
        stack.enter_context(patch.dict(os.environ, {"UNSLOTH_STUDIO_HOME": str(Path.cwd())}))
        for name, stand in stands.items():
            if hasattr(command, name):
                stack.enter_context(patch.object(command, name, stand))
        yield


def _default_optimizer() -> str:
    """The default of `_optimizer_for_host` on a host with CUDA or ROCm, from its own source."""
    text = within("studio/backend/core/training/training.py").read_text("utf-8")
    lines = (line.partition("=") for line in text.splitlines())
    (found,) = (value for key, _, value in lines if key.strip() == "DEFAULT_TRAINING_OPTIMIZER")
    return found.strip().strip("\"'")
