"""SwissArmyTransformer's `get_args`, after the flags of VisualGLM's script.

Runs inside an environment that holds the release. The package is not imported, since that needs
triton, webdataset and more: its parser is taken from arguments.py and run alone, without the
process group that it starts at the end. Verbs: `schema`, `resolve`.
"""

import argparse
import ast
import importlib.util
import json
import os
import random
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import numpy as np
import torch

from tunec.compiler.consumers.devices import declared, pretended
from tunec.compiler.consumers.json_types import plain
from tunec.compiler.consumers.refusal import Refused, stage
from tunec.compiler.consumers.workplace import workplace
from tunec.targets.scripts.extract import definitions
from tunec.targets.scripts.facts import calls, closed, flags

_ADDING: Final = (
    *("add_model_config_args", "add_training_args", "add_evaluation_args", "add_data_args"),
    *("add_text_generate_args", "add_tokenization_args", "_adjust_vocab_size", "get_args"),
)
_DISTRIBUTION: Final = "SwissArmyTransformer"


def schema(question: Mapping[str, Any]) -> dict[str, Any]:
    """The flags of `scripts` (paths), of ChatGLM's class, of arguments.py, and of DeepSpeed."""
    texts = [Path(each).read_text(encoding="utf-8") for each in question["scripts"]]
    found: dict[str, Any] = {"deepspeed_config": {"type": "string"}}
    for text in (*texts, _text("model/official/chatglm_model.py"), _text("arguments.py")):
        found |= flags(text)
    consumer = f"{_DISTRIBUTION}=={version(_DISTRIBUTION)}"
    return closed("flags of finetune_visualglm.py", consumer, found)


def _text(path: str) -> str:
    return Path(_folder(), path).read_text(encoding="utf-8")


def resolve(question: Mapping[str, Any]) -> dict[str, Any]:
    """Parse flags as the script does: its own parser first, then `get_args` for the rest.

    In: `scripts`, paths; `argv`; `files` by name; `world_size`. Out: `version`; `refused` (None, or
    stage, type and message); `values`, the merged arguments with DeepSpeed's configuration.
    """
    answer: dict[str, Any] = {"version": version(_DISTRIBUTION), "refused": None, "values": {}}
    get_args = _parser()
    world = str(question.get("world_size", 1))
    environment = patch.dict(os.environ, {"WORLD_SIZE": world, "RANK": "0", "LOCAL_RANK": "0"})
    with workplace(question["files"]), environment, pretended(declared(question)):
        try:
            with stage("parse"), _quiet():
                known, rest = _own(question["scripts"]).parse_known_args(list(question["argv"]))
                held = get_args(rest)
        except Refused as refused:
            return answer | {"refused": refused.told()}
    return answer | {"values": plain({**vars(held), **vars(known)})}


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _own(scripts: list[str]) -> argparse.ArgumentParser:
    """A parser with every flag that the scripts add, by their own calls."""
    parser = argparse.ArgumentParser(add_help=False)
    texts = [Path(each).read_text(encoding="utf-8") for each in scripts]
    for text in (*texts, _text("model/official/chatglm_model.py")):
        for call in calls(text):
            call.func = ast.Name("add_argument", ast.Load())
            code = compile(ast.fix_missing_locations(ast.Expression(call)), "script.py", "eval")
            eval(code, {"add_argument": parser.add_argument, "json": json})  # noqa: S307  pinned
    return parser


def _parser() -> Any:
    def nothing(*_: Any, **__: Any) -> None:
        """Replaces functions that print, seed, or start a process group."""

    given = {
        "argparse": argparse,
        "os": os,
        "torch": torch,
        "json": json,
        "random": random,
        "np": np,
        "warnings": warnings,
        "print_all": nothing,
        "print_rank0": nothing,
        "initialize_distributed": nothing,
        "set_random_seed": nothing,
        "__file__": str(Path(_folder(), "arguments.py")),
    }
    return definitions(_text("arguments.py"), _ADDING, given)["get_args"]


def _folder() -> str:
    found = importlib.util.find_spec("sat")
    return str(next(iter(found.submodule_search_locations or ()))) if found else ""


VERBS = {"schema": schema, "resolve": resolve}
