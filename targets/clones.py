"""Helpers for the scripts that generate key tables: files of a clone at a commit, and literals."""

import ast
import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import tunec.schemas

FOLDER: Final = Path(tunec.schemas.__file__).parent / "json"


def write_tables(
    package: str, commits: Mapping[str, str], document: Callable[[str, str], Mapping[str, Any]]
) -> None:
    """Write a package's key table for each release; `document` takes release and commit."""
    for release, commit in commits.items():
        path = FOLDER / package / f"{release}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document(release, commit), indent=1) + "\n", "utf-8")


def python_texts(clone: str, commit: str, folder: str) -> list[str]:
    """The texts of the Python files below a folder of a clone at a commit."""
    names = git(clone, "ls-tree", "-r", "--name-only", commit, folder).split()
    return [git(clone, "show", f"{commit}:{each}") for each in names if each.endswith(".py")]


def git(clone: str, *arguments: str) -> str:
    """The output of a git command in a clone. Raises CalledProcessError if git fails."""
    asked = ["git", "-C", clone, *arguments]  # the person who regenerates names the clone
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout  # noqa: S603


def literal(node: ast.expr | None) -> Any:
    """The value of a literal expression; None if the expression is missing or not a literal."""
    try:
        return None if node is None else ast.literal_eval(node)
    except ValueError:
        return None
