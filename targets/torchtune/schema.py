"""Writes the keys that the recipes of torchtune read, by release, from a clone.

`python -m tunec.targets.torchtune.schema CLONE` rewrites `schemas/json/torchtune/*.json`. A recipe
accepts any key, and reads the known ones, which are found in its source. Keys below a component are
its arguments, and components may be the user's own.
"""

import ast
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from tunec.targets.clones import literal, python_texts, write_tables
from tunec.targets.torchtune.packages import COMMITS, PACKAGE

_RECIPES: Final = "recipes"
_CONFIG: Final = "cfg"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files; return the exit status."""
    (clone,) = sys.argv[1:] if arguments is None else arguments
    write_tables(PACKAGE, COMMITS, partial(_document, clone))
    return 0


def _document(clone: str, release: str, commit: str) -> dict[str, Any]:
    texts = python_texts(clone, commit, _RECIPES)
    keys = sorted({key for text in texts for key in _keys_of(ast.parse(text))})
    return {
        "$comment": "keys of the configuration that recipes require",
        "x-consumer": f"{PACKAGE}=={release}",
        "properties": {key: {} for key in keys},
    }


def _keys_of(tree: ast.AST) -> Iterator[str]:
    """`cfg.key`, and `cfg.get("key")`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_config(node.value) and node.attr != "get":
            yield node.attr
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            word = literal(node.args[0])
            is_get = node.func.attr == "get" and _is_config(node.func.value)
            if is_get and isinstance(word, str):
                yield word


def _is_config(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == _CONFIG


if __name__ == "__main__":
    sys.exit(main())
