"""The arguments that LLaMA-Factory's own parser reads from a YAML, before a model is loaded."""

import importlib
import importlib.util
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import fields
from importlib.metadata import version
from importlib.resources import files
from typing import Any
from unittest.mock import patch

import yaml

from tunec.compiler.consumers.devices import declared
from tunec.compiler.consumers.json_types import plain
from tunec.compiler.consumers.refusal import Refused, stage
from tunec.compiler.consumers.workplace import workplace
from tunec.targets.huggingface.consumer.arguments import settled
from tunec.targets.huggingface.consumer.hardware import machine


def resolve(question: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with which `llamafactory.train.tuner.run_exp` continues after parsing the file.

    In: `yaml`; `files` (the texts of the files it names, by path); `model_config` and `max_steps`
    for DeepSpeed's file; the declared machine. Out: `version`; `refused` (None, or stage, type and
    message); `values` of all fields of its classes; `sets`, how each data set is read, by name;
    `derived` and `deepspeed`, as the Trainer's arguments resolve them.
    """
    answer: dict[str, Any] = {
        "version": version("llamafactory"),
        "refused": None,
        "values": {},
        "sets": {},
        "derived": {},
        "deepspeed": None,
    }
    around = {"ALLOW_EXTRA_ARGS": "0", "LLAMAFACTORY_VERBOSITY": "WARN"}
    with (
        warnings.catch_warnings(),
        workplace(question.get("files", {})),
        patch.dict(os.environ, around),
        machine(declared(question), question.get("world_size", 1)),
    ):
        warnings.simplefilter("ignore")
        try:
            _fill(answer, question)
        except Refused as refused:
            answer["refused"] = refused.told()
    return answer


def _fill(answer: dict[str, Any], question: Mapping[str, Any]) -> None:
    """Fill the answer as far as the program runs, then raise the error that stopped it."""
    parser: Any = importlib.import_module("llamafactory.hparams.parser")
    with stage("parse"):
        model, data, training, tuning, writing = parser.get_train_args(
            yaml.safe_load(question["yaml"])
        )
    for part in (writing, tuning, training, data, model):
        answer["values"] |= {each.name: plain(getattr(part, each.name)) for each in fields(part)}
    with stage("data"):
        answer["sets"] = dict(_sets(data))
    answer |= settled(training, question)


def _sets(data: Any) -> Iterator[tuple[str, Any]]:
    """How each data set that the file names is read."""
    names = [*(data.dataset or ()), *(data.eval_dataset or ())]
    found = _reader().get_dataset_list(names, data.dataset_dir)
    for name, each in zip(names, found, strict=True):
        yield name, plain(vars(each))


def _reader() -> Any:
    """`llamafactory.data.parser` without its package, which imports audio and image readers."""
    name = "llamafactory.data.parser"
    place = files("llamafactory").joinpath("data", "parser.py")
    spec = importlib.util.spec_from_file_location(name, str(place))
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    with patch.dict(sys.modules, {name: module}):
        spec.loader.exec_module(module)
    return module
