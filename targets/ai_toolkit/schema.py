"""Write the keys that ai-toolkit's config classes read in each release, from a clone.

`python -m tunec.targets.ai_toolkit.schema CLONE` rewrites `schemas/json/ai-toolkit/*.json`. A class
accepts any key and only reads those that it knows, which are extracted from its source.
"""

import ast
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from tunec.targets.ai_toolkit.packages import COMMITS, PACKAGE
from tunec.targets.clones import git, literal, python_texts, write_tables

CLASSES: Final = {
    "network": "NetworkConfig",
    "train": "TrainConfig",
    "train.ema_config": "EMAConfig",
    "model": "ModelConfig",
    "save": "SaveConfig",
    "sample": "SampleConfig",
    "first_sample": "SampleConfig",
    "logging": "LoggingConfig",
    "datasets": "DatasetConfig",
}
"""The class of each block (jobs/process/BaseSDTrainProcess.py `__init__`)."""
_ASKING: Final = ("kwargs", "raw_config", "dataset")
_MODULE: Final = "toolkit/config_modules.py"
_PROCESSES: Final = ("jobs/process", "extensions_built_in/sd_trainer")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files; return the exit status."""
    (clone,) = sys.argv[1:] if arguments is None else arguments
    write_tables(PACKAGE, COMMITS, partial(_document, clone))
    return 0


def _document(clone: str, release: str, commit: str) -> dict[str, Any]:
    tree = ast.parse(git(clone, "show", f"{commit}:{_MODULE}"))
    classes = {each.name: each for each in tree.body if isinstance(each, ast.ClassDef)}
    blocks = {name: dict(_keys_of(classes[kind])) for name, kind in CLASSES.items()}
    at_top = sorted({key for text in _processes(clone, commit) for key in _configured(text)})
    return {
        "$comment": "kwargs.get of each config class, get_conf of the processes",
        "x-consumer": f"{PACKAGE}=={release}",
        "properties": {
            **{key: {} for key in at_top},
            **{name: {"properties": keys} for name, keys in blocks.items()},
        },
    }


def _keys_of(node: ast.ClassDef) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each key that a class reads, with its default if that is a literal."""
    for call in ast.walk(node):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        holder, words = call.func.value, [literal(each) for each in call.args]
        is_asking = isinstance(holder, ast.Name) and holder.id in _ASKING
        if is_asking and call.func.attr in ("get", "pop") and words and isinstance(words[0], str):
            is_plain = len(words) > 1 and isinstance(words[1], bool | int | float | str)
            yield words[0], {"default": words[1]} if is_plain else {}


def _processes(clone: str, commit: str) -> Iterator[str]:
    for folder in _PROCESSES:
        yield from python_texts(clone, commit, folder)


def _configured(text: str) -> Iterator[str]:
    for call in ast.walk(ast.parse(text)):
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "get_conf":
            name = literal(call.args[0]) if call.args else None
            yield from (name,) if isinstance(name, str) else ()


if __name__ == "__main__":
    sys.exit(main())
