"""How TRL reads its own files: a script's `--config` file, and a ModelConfig.

The scripts are `trl sft`, `trl dpo`, `trl grpo` and `trl reward`.
"""

import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from importlib import metadata
from typing import Any, Final
from unittest.mock import patch

import trl
from transformers import HfArgumentParser
from transformers.quantizers import AutoQuantizationConfig

from tunec.compiler.consumers.devices import declared
from tunec.compiler.consumers.json_types import plain
from tunec.compiler.consumers.refusal import Refused, stage
from tunec.compiler.consumers.workplace import workplace
from tunec.targets.huggingface.consumer.arguments import settled
from tunec.targets.huggingface.consumer.hardware import machine
from tunec.targets.huggingface.consumer.trl_classes import classes, parser

_FILE: Final = "config.yaml"
_MODEL_FILE: Final = "model_args.yaml"
_BITSANDBYTES: Final = "0.48.0"


def script(question: Mapping[str, Any]) -> dict[str, Any]:
    """Pass a file to the parser of `trl METHOD`.

    In: `method` (sft, dpo, grpo, reward); `yaml`, the text of the file; `files`, further files by
    their path relative to the working directory; `world_size`; `capability`, `emulates_bf16`. Out:
    `version`; `refused` (None, or stage, type and message); `values` of all fields of all classes;
    `quantization` and `adapter`, the configurations that the script builds from them, or None;
    `derived` and `deepspeed` as `resolve` has them, with `model_config` and `max_steps`.
    """
    answer = _begun()
    files = {**question.get("files", {}), _FILE: question["yaml"]}
    named = patch.object(sys, "argv", ["script.py", "--config", _FILE])
    with warnings.catch_warnings(), workplace(files), _surroundings(question), named:
        warnings.simplefilter("ignore")
        try:
            return answer | _parsed(question)
        except Refused as refused:
            return answer | {"refused": refused.told()}


def _begun() -> dict[str, Any]:
    return {"version": trl.__version__, "refused": None, "values": {}}


def _parsed(question: Mapping[str, Any]) -> dict[str, Any]:
    method = question["method"]
    kinds = classes(method)
    if kinds is None:
        raise Refused("script", ImportError(f"no script {method} in this release"))
    with stage("parse"):
        parts = parser()(kinds).parse_args_and_config()
    values: dict[str, Any] = {}
    for kind, part in zip(kinds, parts, strict=True):
        names = [each.name for each in fields(kind) if each.init]
        values |= {name: plain(getattr(part, name, None)) for name in names}
    arguments, model = parts[1], parts[2]
    with stage("quantization"):
        quantised = _quantised(method, arguments, model)
    with stage("adapter"):
        adapter = trl.get_peft_config(model)
    return {
        **settled(arguments, question),
        "values": values,
        "quantization": plain(quantised.to_dict()) if quantised else None,
        "adapter": plain(adapter.to_dict()) if adapter else None,
    }


def _quantised(method: str, arguments: Any, model: Any) -> Any:
    """The configuration for `from_pretrained`; some releases pass that of `model_init_kwargs` on.

    trl 0.22 to 0.25 scripts/grpo.py, and 0.24 to 1.4 scripts/reward.py.
    """
    told = getattr(arguments, "model_init_kwargs", None) or {}
    if method in ("grpo", "reward") and "quantization_config" in told:
        return AutoQuantizationConfig.from_dict({**told["quantization_config"]})
    return trl.get_quantization_config(model)


def model(question: Mapping[str, Any]) -> dict[str, Any]:
    """Pass `yaml`, the text of model_args.yaml, to transformers' parser for TRL's ModelConfig."""
    answer = _begun()
    with workplace({_MODEL_FILE: question["yaml"]}), _surroundings(question):
        try:
            with stage("parse"):
                (held,) = HfArgumentParser([trl.ModelConfig]).parse_yaml_file(_MODEL_FILE)
            return answer | {"values": plain(asdict(held))}
        except Refused as refused:
            return answer | {"refused": refused.told()}


@contextmanager
def _surroundings(question: Mapping[str, Any]) -> Iterator[None]:
    """Simulate the declared machine, and bitsandbytes, of which only the version is read."""
    real = metadata.version

    def version(name: str) -> str:
        return _BITSANDBYTES if name == "bitsandbytes" else real(name)

    with (
        machine(declared(question), question.get("world_size", 1)),
        patch.object(metadata, "version", version),
    ):
        yield
