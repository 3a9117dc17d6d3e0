"""The surroundings of a question: SimpleTuner imported without a GPU, an empty folder, its log.

The entry points are those of simpletuner 3.1.6 and 4.10.1.
"""

import contextlib
import enum
import importlib
import io
import logging
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from unittest import mock

from tunec.targets.simpletuner.consumer import shims

Question = Mapping[str, Any]
Answer = dict[str, Any]

_LIBRARIES: Final = (
    *("accelerate", "bitsandbytes", "deepspeed", "diffusers", "optimum.quanto", "peft", "torchao"),
    "transformers",
)


def _import_simpletuner() -> None:
    """Import SimpleTuner as on a machine with a current GPU.

    In 3.1.6 `helpers/training/__init__.py` sets the choices of `--base_model_precision` by what
    torch reports of the first device; the libraries are imported before, so that they do not look
    for one.
    """
    shims.install()
    for library in _LIBRARIES:
        importlib.import_module(library)
    with shims.device((9, 0)):
        importlib.import_module("simpletuner.helpers.training")
    importlib.import_module("simpletuner.helpers.training.trainer")
    importlib.import_module("accelerate").PartialState(cpu=True)


_import_simpletuner()


def simpletuner(name: str) -> Any:
    """A module of SimpleTuner by its name under `simpletuner`."""
    return importlib.import_module(f"simpletuner.{name}")


@contextlib.contextmanager
def surroundings(question: Question) -> Iterator[list[str]]:
    """An empty working directory with the question's files; yields the list of logged warnings."""
    tracker = simpletuner("helpers.training.state_tracker").StateTracker
    before = Path.cwd()
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, question.get("environment", {})),
        mock.patch.object(sys, "argv", ["train.py"]),
        shims.device(
            question.get("capability"), question.get("devices", 1), question.get("memory", 0)
        ),
        _logged() as log,
    ):
        for name, text in question.get("files", {}).items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        for name in question.get("folders", ()):
            Path(folder, name).mkdir(parents=True, exist_ok=True)
        os.chdir(folder)
        tracker.set_config_path("config")
        try:
            yield log
        finally:
            os.chdir(before)


@contextlib.contextmanager
def _logged() -> Iterator[list[str]]:
    """Collect the warnings and errors of every logger, whatever its level and propagation."""
    lines: list[str] = []

    def handle(_logger: logging.Logger, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            lines.append(f"{record.levelname.lower()}: {record.getMessage()}")

    with mock.patch.object(logging.Logger, "handle", handle):
        yield lines


class Refused(Exception):
    """SimpleTuner refused the configuration, at a stage."""

    def __init__(self, stage: str, fault: BaseException, message: str) -> None:
        super().__init__(stage)
        self.error = {"stage": stage, "type": type(fault).__name__, "message": message}


def attempt(stage: str, log: list[str], call: Callable[[], Any]) -> Any:
    """Call the real code; argparse and the safety check print the reason and raise SystemExit."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return call()
    except SystemExit as fault:
        lines = [*log, *said.getvalue().strip().splitlines()]
        raise Refused(stage, fault, lines[-1] if lines else "") from fault
    except Exception as fault:
        raise Refused(stage, fault, _without_traceback(str(fault))) from fault


def _without_traceback(message: str) -> str:
    """The last line of a message: 4.x includes a whole traceback of argparse in its ValueError."""
    return message.strip().splitlines()[-1] if "Traceback (most recent" in message else message


def plain(value: Any) -> Any:
    """A JSON value; for other objects their name: `torch.bfloat16` becomes `bfloat16`."""
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return str(value).removeprefix("torch.")
