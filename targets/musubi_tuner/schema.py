"""Writes the flags of musubi-tuner's parsers, by release, from a clone of its repository.

`python -m tunec.targets.musubi_tuner.schema CLONE` rewrites `schemas/json/musubi-tuner/*.json`: for
every training script the functions are run by which its `main` builds the parser, and each flag is
stored with its type, choices and default, together with the flags that a script lacks.
"""

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import PurePath
from types import SimpleNamespace
from typing import Any, Final

from tunec.targets.clones import git, write_tables
from tunec.targets.musubi_tuner.packages import COMMITS, FOLDER, PACKAGE
from tunec.targets.scripts.functions import Module, Tree, flags
from tunec.targets.scripts.parser_tables import table_of

_ROOT: Final = "musubi_tuner"
_BACKENDS: Final = (
    *("NO", "EAGER", "AOT_EAGER", "INDUCTOR", "AOT_TS_NVFUSER", "NVPRIMS_NVFUSER", "CUDAGRAPHS"),
    *("OFI", "FX2TRT", "ONNXRT", "TENSORRT", "AOT_TORCHXLA_TRACE_ONCE", "TORCHXLA_TRACE_ONCE"),
    *("IPEX", "TVM", "HPU_BACKEND"),
)
"""accelerate 1.6.0, which musubi-tuner pins, utils/dataclasses.py `DynamoBackend`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files; return the exit status."""
    (clone,) = sys.argv[1:] if arguments is None else arguments
    write_tables(PACKAGE, COMMITS, partial(_document, clone))
    return 0


def _document(clone: str, release: str, commit: str) -> dict[str, Any]:
    names = git(clone, "ls-tree", "--name-only", commit, f"{FOLDER}/").split()
    stems = sorted(PurePath(name).stem for name in names if "_train" in PurePath(name).stem)
    tree = Tree(partial(_text, clone, commit))
    made = {stem: _flags(tree, stem, _text(clone, commit, f"{_ROOT}/{stem}.py")) for stem in stems}
    return table_of(PACKAGE, release, {stem: each for stem, each in made.items() if each})


def _text(clone: str, commit: str, path: str) -> str | None:
    """The text of a module or package, in which star imports are expanded."""
    package = path.removesuffix(".py")
    text = _shown(clone, commit, path) or _shown(clone, commit, f"{package}/__init__.py")
    if text is None:
        return None
    if "from ." in text:
        text = text.replace("from .", f"from {package.replace('/', '.')}.")
    for each in re.findall(rf"from ({_ROOT}[.\w]*) import \*", text):
        whole = _shown(clone, commit, f"{each.replace('.', '/')}.py") or ""
        names = ", ".join(re.findall(r"^([A-Z]\w+) = ", whole, re.MULTILINE))
        text = text.replace(f"from {each} import *", f"from {each} import {names}" if names else "")
    return text


def _shown(clone: str, commit: str, path: str) -> str | None:
    try:
        return git(clone, "show", f"{commit}:src/{path}")
    except subprocess.CalledProcessError:
        return None


def _flags(tree: Tree, stem: str, text: str | None) -> dict[str, dict[str, Any]]:
    """The flags of a script, whose `main` calls the builders of its parser one after another."""
    module = tree.module(f"{_ROOT}.{stem}")
    (entry,) = (
        each
        for each in ast.parse(text or "").body
        if isinstance(each, ast.FunctionDef) and each.name == "main"
    )
    parser: Any = None
    for call in _making(entry.body):
        maker = _named(module, ast.unparse(call.func))
        parser = maker(parser) if call.args else maker()
    assert isinstance(parser, argparse.ArgumentParser)  # noqa: S101  each script makes one
    for action in parser._actions:  # noqa: SLF001  argparse has no other way
        if getattr(action.type, "__name__", "") == "_int_or_float":
            action.type = int_or_float
    return flags(parser)


def int_or_float(text: str) -> str:
    """Replaces the program's function of this name, which releases define in two places."""
    return text


def _making(nodes: Sequence[ast.stmt]) -> Iterator[ast.Call]:
    """The calls that build the parser, in order."""
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name("parser")], value=ast.Call() as call):
                yield call


def _named(module: Module | None, dotted: str) -> Any:
    """A function by its name in a script, with the launcher's choices that it needs."""
    held: Any = module
    for part in dotted.split("."):
        held = getattr(held, part)
    scope = held.__globals__
    if "DynamoBackend" in getattr(scope, "_imports", ()):
        scope["DynamoBackend"] = [SimpleNamespace(value=word) for word in _BACKENDS]
    return held


if __name__ == "__main__":
    sys.exit(main())
