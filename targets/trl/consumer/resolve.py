"""What a script of TRL makes of its file: every field of every class, and what follows."""

import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from dataclasses import fields
from importlib import metadata
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import trl

from tunec.compiler.consumers.devices import declared
from tunec.compiler.consumers.json_types import plain
from tunec.targets.huggingface.consumer.arguments import Refused, stage
from tunec.targets.huggingface.consumer.hardware import machine
from tunec.targets.trl.consumer.classes import classes, parser

_FILE: Final = "config.yaml"
_BITSANDBYTES: Final = "0.48.0"


def resolve(question: Mapping[str, Any]) -> dict[str, Any]:
    """Hand a file to the parser of `trl METHOD`.

    In: `method` (sft, dpo, grpo); `yaml`, the text of the file; `files`, further files by their
    path relative to the working directory; `world_size`; `capability`, `emulates_bf16`. Out:
    `version`; `refused` (None, or stage, type and message); `values` of all fields of all classes;
    `quantization` and `adapter`, the configurations that the script builds from them.
    """
    answer: dict[str, Any] = {"version": trl.__version__, "refused": None}
    with warnings.catch_warnings(), _workplace(question):
        warnings.simplefilter("ignore")
        try:
            return answer | _parsed(question["method"])
        except Refused as refused:
            return answer | {"refused": refused.told()}


@contextmanager
def _workplace(question: Mapping[str, Any]) -> Iterator[None]:
    """A directory with the files, the declared machine, and bitsandbytes as far as its version."""
    real = metadata.version

    def version(name: str) -> str:
        return _BITSANDBYTES if name == "bitsandbytes" else real(name)

    with (
        tempfile.TemporaryDirectory() as folder,
        chdir(folder),
        machine(declared(question), question.get("world_size", 1)),
        patch.object(metadata, "version", version),
        patch.object(sys, "argv", ["script.py", "--config", _FILE]),
    ):
        for name, text in {**question.get("files", {}), _FILE: question["yaml"]}.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        yield


def _parsed(method: str) -> dict[str, Any]:
    kinds = classes(method)
    if kinds is None:
        raise Refused("script", ImportError(f"no script {method} in this release"))
    with stage("parse"):
        parts = parser()(kinds).parse_args_and_config()
    values: dict[str, Any] = {}
    for kind, part in zip(kinds, parts, strict=True):
        names = [each.name for each in fields(kind) if each.init]
        values |= {name: plain(getattr(part, name, None)) for name in names}
    model = parts[2]
    with stage("quantization"):
        quantised = trl.get_quantization_config(model)
    with stage("adapter"):
        adapter = trl.get_peft_config(model)
    return {
        "values": values,
        "quantization": plain(quantised.to_dict()) if quantised else None,
        "adapter": plain(adapter.to_dict()) if adapter else None,
    }
