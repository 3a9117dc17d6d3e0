"""The configs below a folder that was named in the place of files."""

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct

_SUFFIXES: Final = frozenset(
    {".json", ".yaml", ".yml", ".toml", ".env", ".sh", ".slurm", ".sbatch", ".hostfile"}
)
_NAMES: Final = frozenset({"hostfile"})
_NOT_ENTERED: Final = frozenset({"__pycache__", "node_modules", "site-packages"})


_MOST_FILES: Final = 1_000
_MOST_FOLDERS: Final = 10_000
"""Where a walk ends: what was named is then no project, but a disk that holds many."""


class Gathered(Struct, frozen=True):
    """Files that were named, or found below folders that were."""

    files: Mapping[Path, bool]
    """In order; true: it was found, and not named."""
    cut_short: tuple[Path, ...] = ()
    """Folders below which there are more than were looked at."""


def files_of(paths: Iterable[Path]) -> Gathered:
    """Each file once, folders as the files below them.

    Hidden folders, links to folders, other file systems and folders of packages are not entered,
    and no more than 1,000 files in 10,000 folders are taken of one that is named. A folder that
    cannot be read, or holds nothing, is given as it is, so that whoever reads it says so.
    """
    every: dict[Path, bool] = {}
    cut: list[Path] = []
    for path in paths:
        found = list(islice(_below(path), _MOST_FILES + 1)) if path.is_dir() else []
        files = [each for each in found if each is not None][:_MOST_FILES]
        if len(files) < len(found):
            cut.append(path)
        for each in files or (path,):
            every.setdefault(each, bool(files))
    return Gathered(every, tuple(cut))


def _below(folder: Path) -> Iterator[Path | None]:
    """The files below a folder; None at last, where there are too many folders to enter them."""
    device = folder.stat().st_dev
    for entered, (place, folders, names) in enumerate(os.walk(folder)):
        if entered == _MOST_FOLDERS:
            yield None
            return
        folders[:] = sorted(each for each in folders if _is_entered(Path(place, each), device))
        found = (Path(place, name) for name in sorted(names) if _may_be_read(name))
        yield from (each for each in found if each.is_file())


def _is_entered(folder: Path, device: int) -> bool:
    if folder.name.startswith(".") or folder.name in _NOT_ENTERED:
        return False
    try:
        return folder.lstat().st_dev == device
    except OSError:
        return False


def _may_be_read(name: str) -> bool:
    return Path(name).suffix.lower() in _SUFFIXES or name in _NAMES
