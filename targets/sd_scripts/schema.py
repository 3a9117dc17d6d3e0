"""Writes the flags of sd-scripts' parsers, by release, from a clone of its repository.

`python -m tunec.targets.sd_scripts.schema CLONE` rewrites `schemas/json/sd-scripts/*.json`: for
every training script `setup_parser` is run, and each flag is stored with its type, choices and
default, together with the flags that a script lacks.
"""

import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import Any

from tunec.targets.clones import write_tables
from tunec.targets.scripts.functions import Tree, flags
from tunec.targets.scripts.parser_tables import table_of
from tunec.targets.sd_scripts.packages import COMMITS, PACKAGE


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files; return the exit status."""
    (clone,) = sys.argv[1:] if arguments is None else arguments
    write_tables(PACKAGE, COMMITS, partial(_document, Path(clone)))
    return 0


def _document(clone: Path, release: str, commit: str) -> dict[str, Any]:
    names = _git(clone, "ls-tree", "--name-only", commit) or ""
    stems = [PurePath(name).stem for name in names.split() if _trains(name)]
    tree = Tree(lambda path: _git(clone, "show", f"{commit}:{path}"))
    modules = {stem: tree.module(stem) for stem in sorted(stems)}
    found = {
        stem: flags(module["setup_parser"]())
        for stem, module in modules.items()
        if module is not None
    }
    return table_of(PACKAGE, release, found)


def _trains(name: str) -> bool:
    return name.endswith(".py") and ("train" in name or name == "fine_tune.py")


def _git(clone: Path, *arguments: str) -> str | None:
    """git's output for a clone; None if it fails."""
    asked = ["git", "-C", str(clone), *arguments]  # the person who regenerates names the clone
    done = subprocess.run(asked, check=False, capture_output=True, text=True)  # noqa: S603
    return done.stdout if done.returncode == 0 else None


if __name__ == "__main__":
    sys.exit(main())
