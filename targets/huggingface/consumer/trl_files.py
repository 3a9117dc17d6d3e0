"""What TRL makes of its own files: `trl sft --config`, and a ModelConfig alone."""

import contextlib
import importlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest.mock import patch

import trl
from transformers import HfArgumentParser

from tunec.compiler.consumers.devices import declared
from tunec.compiler.consumers.json_types import plain
from tunec.targets.huggingface.consumer.arguments import Refused, stage, workplace
from tunec.targets.huggingface.consumer.hardware import machine


def script(question: Mapping[str, Any]) -> dict[str, Any]:
    """Hand `config` (a YAML file among `files`) to the parser of `trl sft`.

    In: `config`, `files`, `world_size`, and the device. Out: `version`; `refused` (None, or stage,
    type and message); `values` of every class that the script parses, by field; `quantization` and
    `adapter`, the configurations that follow from them, or None.
    """
    answer: dict[str, Any] = {"version": trl.__version__, "refused": None, "values": {}}
    with workplace(question["files"]), _surroundings(question):
        try:
            return answer | _parsed(question["config"])
        except Refused as refused:
            return answer | {"refused": refused.told()}


def _parsed(config: str) -> dict[str, Any]:
    parser, classes = _classes()
    with stage("parse"), patch.object(sys, "argv", ["sft.py", "--config", config]):
        parts = parser(classes).parse_args_and_config()
    values: dict[str, Any] = {}
    for part in parts:
        values |= {each.name: plain(getattr(part, each.name, None)) for each in fields(part)}
    model = parts[2]
    with stage("model"):
        quantised = trl.get_quantization_config(model)
        adapter = trl.get_peft_config(model)
    return {
        "values": values,
        "quantization": plain(quantised.to_dict()) if quantised else None,
        "adapter": plain(adapter.to_dict()) if adapter else None,
    }


def _classes() -> tuple[Any, tuple[Any, ...]]:
    """The parser of `trl sft`, and what it parses into: it moved twice (trl 0.8.6 to 1.16.0)."""
    mixture, arguments = _of_trl("DatasetMixtureConfig"), _of_trl("ScriptArguments")
    if arguments is not None:
        known = (arguments, trl.SFTConfig, trl.ModelConfig, *((mixture,) if mixture else ()))
        return trl.TrlParser, known
    old = importlib.import_module("trl.commands.cli_utils")
    arguments = getattr(old, "SFTScriptArguments", None) or old.SftScriptArguments
    config = _of_trl("SFTConfig") or importlib.import_module("transformers").TrainingArguments
    return old.TrlParser, (arguments, config, trl.ModelConfig)


def _of_trl(name: str) -> Any:
    """What `from trl import NAME` gives, or None: its lazy module knows what it has."""
    with contextlib.suppress(AttributeError, ImportError):
        return getattr(trl, name)
    return None


def model(question: Mapping[str, Any]) -> dict[str, Any]:
    """Hand `yaml`, the text of model_args.yaml, to transformers' parser for TRL's ModelConfig."""
    answer: dict[str, Any] = {"version": trl.__version__, "refused": None, "values": {}}
    with workplace({"model_args.yaml": question["yaml"]}), _surroundings(question):
        try:
            with stage("parse"):
                parser = HfArgumentParser([trl.ModelConfig])
                (held,) = parser.parse_yaml_file(str(Path("model_args.yaml")))
            return answer | {"values": plain(asdict(held))}
        except Refused as refused:
            return answer | {"refused": refused.told()}


@contextlib.contextmanager
def _surroundings(question: Mapping[str, Any]) -> Iterator[None]:
    """The declared machine; of bitsandbytes only the version is asked for, and nothing runs."""
    real = metadata.version

    def version(name: str) -> str:
        return "0.48.0" if name == "bitsandbytes" else real(name)

    with (
        machine(declared(question), question.get("world_size", 1)),
        patch.object(metadata, "version", version),
    ):
        yield
