"""The configs below a folder that was named in the place of files."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_SUFFIXES: Final = frozenset(
    {".json", ".yaml", ".yml", ".toml", ".env", ".sh", ".slurm", ".sbatch", ".hostfile"}
)
_NAMES: Final = frozenset({"hostfile"})
_NOT_ENTERED: Final = frozenset({"__pycache__", "node_modules", "site-packages"})


def files_of(paths: Iterable[Path]) -> Iterator[tuple[Path, bool]]:
    """Each file once, folders as the files below them; true: it was found, and not named.

    Hidden folders, links to folders and folders of packages are not entered. A folder that cannot
    be read, or holds nothing, is given as it is, so that whoever reads it says so.
    """
    told: set[Path] = set()
    for path in paths:
        found = list(_below(path)) if path.is_dir() else []
        for each in found or (path,):
            if each not in told:
                told.add(each)
                yield each, bool(found)


def _below(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(filter(_is_entered, folders))
        found = (Path(place, name) for name in sorted(names) if _may_be_read(name))
        yield from (each for each in found if each.is_file())


def _is_entered(name: str) -> bool:
    return not name.startswith(".") and name not in _NOT_ENTERED


def _may_be_read(name: str) -> bool:
    return Path(name).suffix.lower() in _SUFFIXES or name in _NAMES
