"""Writes which keys the recipes of torchtune ask for, by release, from a clone.

`python -m tunec.targets.torchtune.schema CLONE` rewrites `schemas/json/torchtune/*.json`. A recipe
takes any key, and asks for those that it has: they are read off its source. What stands below a
component is for the component, which may be anybody's.
"""

import ast
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import tunec.schemas
from tunec.targets.clones import git, literal
from tunec.targets.torchtune.packages import COMMITS, PACKAGE

FOLDER: Final = Path(tunec.schemas.__file__).parent / "json"
_RECIPES: Final = "recipes"
_CONFIG: Final = "cfg"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files; return the exit status."""
    (clone,) = sys.argv[1:] if arguments is None else arguments
    for release, commit in COMMITS.items():
        path = FOLDER / PACKAGE / f"{release}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(_document(clone, release, commit), indent=1) + "\n", "utf-8")
    return 0


def _document(clone: str, release: str, commit: str) -> dict[str, Any]:
    names = git(clone, "ls-tree", "-r", "--name-only", commit, _RECIPES).split()
    texts = [git(clone, "show", f"{commit}:{each}") for each in names if each.endswith(".py")]
    keys = sorted({key for text in texts for key in _asked(ast.parse(text))})
    return {
        "$comment": "keys of the configuration that recipes ask for",
        "x-consumer": f"{PACKAGE}=={release}",
        "properties": {key: {} for key in keys},
    }


def _asked(tree: ast.AST) -> Iterator[str]:
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
