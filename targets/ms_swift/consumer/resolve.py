"""The arguments that ms-swift's own parser reads from a file, before a model is loaded."""

import argparse
import dataclasses
import importlib
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NoReturn
from unittest.mock import patch

import torch

from tunec.compiler.consumers.devices import declared
from tunec.compiler.consumers.json_types import plain
from tunec.compiler.consumers.refusal import Refused, stage
from tunec.compiler.consumers.workplace import workplace
from tunec.targets.huggingface.consumer.arguments import settled
from tunec.targets.huggingface.consumer.hardware import machine
from tunec.targets.ms_swift.consumer.quiet import quietly

_MODEL: Final = "model-of-the-plan"
_FILE: Final = "ms-swift.yaml"


def resolve(question: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `swift sft` or `swift rlhf` after parsing.

    In: `yaml`; `method` (sft or rlhf); `files` (the texts of the files it names, by path);
    `config`, the model's config.json; `model_config` and `max_steps` for DeepSpeed's file; the
    declared machine. Out: `version`; `refused` (None, or stage, type and message); `values` of all
    fields of its class, and of the Trainer's arguments that it creates; `sets`, how each data set's
    name is parsed; `derived` and `deepspeed`, as the Trainer's arguments resolve them.
    """
    answer: dict[str, Any] = {
        "version": version("ms-swift"),
        "refused": None,
        "values": {},
        "sets": {},
        "derived": {},
        "deepspeed": None,
    }
    files = {**question.get("files", {}), _FILE: question["yaml"]}
    model = {f"{_MODEL}/config.json": json.dumps(question["config"])}
    with warnings.catch_warnings(), workplace({**files, **model}), _surroundings(question):
        warnings.simplefilter("ignore")
        try:
            _fill(answer, question)
        except Refused as refused:
            answer["refused"] = refused.told()
    return answer


@contextmanager
def _surroundings(question: Mapping[str, Any]) -> Iterator[None]:
    """The declared machine, one process of a node, and a model without a download."""
    device, world = declared(question), question.get("world_size", 1)
    with ExitStack() as stack:
        stack.enter_context(quietly())
        meta: Any = importlib.import_module("swift.model.model_meta")
        stack.enter_context(machine(device, world))
        if world > 1:
            local = {"LOCAL_WORLD_SIZE": str(min(device.count, world)), "WORLD_SIZE": str(world)}
            around = {"RANK": "0", "LOCAL_RANK": "0", **local}
            stack.enter_context(patch.dict(os.environ, around))
        stack.enter_context(patch.object(torch.cuda, "set_device", lambda *_: None))
        there = str(Path(_MODEL).absolute())
        stack.enter_context(patch.object(meta, "safe_snapshot_download", lambda *_, **__: there))
        stack.enter_context(patch.object(argparse.ArgumentParser, "error", _refuse))
        yield


def _refuse(_: argparse.ArgumentParser, message: str) -> NoReturn:
    """Raise the message that argparse would print."""
    raise ValueError(message)


def _fill(answer: dict[str, Any], question: Mapping[str, Any]) -> None:
    """Fill the answer as far as the program runs, then raise the error that stopped it."""
    arguments: Any = importlib.import_module("swift.arguments")
    kind = arguments.RLHFArguments if question["method"] == "rlhf" else arguments.SftArguments
    utils: Any = importlib.import_module("swift.utils")
    with stage("parse"):
        held, left = utils.parse_args(kind, _flags())
        if left and not held.ignore_args_error:
            raise ValueError(f"remaining_argv: {left}")
    trained = held.training_args
    for part in (held, trained):
        for field in dataclasses.fields(part):
            value = getattr(part, field.name, None)
            answer["values"][field.name] = _placed(plain(value))
    answer["sets"] = {name: list(_sets(getattr(held, name))) for name in ("dataset", "val_dataset")}
    answer |= settled(trained, question)


def _flags() -> list[str]:
    """The flags that the program makes of the file before it starts processes: cli/main.py.

    4.0 reads `--config FILE` (`prepare_config_args`), later releases a FILE as the first word.
    """
    cli: Any = importlib.import_module("swift.cli.main")
    if hasattr(cli, "parse_yaml_args"):
        flags = [_FILE]
        cli.parse_yaml_args(flags)
        return flags
    flags = ["--config", _FILE]
    cli.prepare_config_args(flags)
    return [str(each) for each in flags]


def _placed(value: Any) -> Any:
    """A path below the working directory, relative to it."""
    here = f"{Path.cwd()}{os.sep}"
    return value.removeprefix(here) if isinstance(value, str) else value


def _sets(names: Any) -> Iterator[dict[str, Any]]:
    """The parts of each data set's name: dataset/dataset_syntax.py `DatasetSyntax`."""
    syntax: Any = importlib.import_module("swift.dataset").DatasetSyntax
    for name in names:
        yield plain(vars(syntax.parse(name)))
