"""One side of a comparison: the specs of a file or of a directory."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

_IS_SPEC: Final = re.compile(r"^tunec\s*:", re.MULTILINE)
_MOST: Final = 1 << 20
"""Characters of a file that are looked at: the version stands at its top."""


class Side(Struct, frozen=True):
    """Where the specs of one side are."""

    root: Path
    files: Mapping[str, Path]
    """By name: the path below the root, without its ending."""


def side_of(path: Path) -> Side:
    """The specs of a directory, or the one that a file is. Raises FileNotFoundError."""
    if path.is_file():
        return Side(path.parent, {path.stem: path})
    if not path.is_dir():
        raise FileNotFoundError(path)
    found = sorted(_specs(path))
    return Side(path, {file.relative_to(path).with_suffix("").as_posix(): file for file in found})


def _specs(directory: Path) -> Iterator[Path]:
    for ending in ("*.yaml", "*.yml"):
        for file in directory.rglob(ending):
            hidden = any(part.startswith(".") for part in file.relative_to(directory).parts)
            if file.is_file() and not hidden and _is_spec(file):
                yield file


def _is_spec(file: Path) -> bool:
    """Whether a file says which version of the spec's language it is in."""
    try:
        with file.open(encoding="utf-8") as text:
            return _IS_SPEC.search(text.read(_MOST)) is not None
    except (OSError, UnicodeDecodeError):
        return False
