"""Which file holds settings: `tunec.toml`, or pyproject.toml with `[tool.tunec]`.

It is the nearest one upward from the folder around all that is linted, within the repository.
"""

import os
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tunec.compiler.frontend.disk import Unreadable, read_bytes
from tunec.compiler.frontend.project import project_root

OWN: Final = "tunec.toml"
SHARED: Final = "pyproject.toml"
_HEADER: Final = re.compile(r"(?m)^\s*\[+\s*tool\s*\.\s*tunec\b")


def settings_file(paths: Iterable[Path]) -> Path | None:
    """The file that holds for what is linted: upward from the folder around all of it."""
    folders = {os.path.realpath(each if each.is_dir() else each.parent) for each in paths}
    try:
        start = Path(os.path.commonpath(folders))
    except ValueError:  # no folder, or several disks
        return None
    around = (start, *start.parents)
    root = next((each for each in around if (each / ".git").exists()), None)
    root = root or project_root(start / OWN)
    inside = (each for each in around if each.is_relative_to(root))
    return next(filter(None, map(_in_folder, inside)), None)


def _in_folder(folder: Path) -> Path | None:
    if (folder / OWN).is_file():
        return folder / OWN
    shared = folder / SHARED
    return shared if shared.is_file() and _has_section(shared) else None


def _has_section(path: Path) -> bool:
    """Whether a pyproject.toml speaks to tunec; what is wrong with others is not ours to say."""
    try:
        text = read_bytes(path).decode("utf-8", "replace")
    except Unreadable:
        return False
    if "tunec" not in text:
        return False
    try:
        return "tunec" in tomllib.loads(text).get("tool", {})
    except (tomllib.TOMLDecodeError, RecursionError, TypeError, AttributeError):
        return _HEADER.search(text) is not None
