"""What stands for a folder that was named: the configs below it, and the scripts that hold one."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct

from tunec.compiler.frontend.disk import Unreadable, read_bytes
from tunec.compiler.lints.neighbours import is_python

_SUFFIXES: Final = frozenset(
    {".json", ".yaml", ".yml", ".toml", ".env", ".sh", ".slurm", ".sbatch", ".hostfile"}
)
_NAMES: Final = frozenset({"hostfile"})
_NO_CONFIGS: Final = frozenset({"tunec.toml", "pyproject.toml"})
"""What is read for its settings and its requirements alone."""
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


LeavesOut = Callable[[Path], bool]
"""Whether a file or a folder below one that was named is left out."""


def _nothing(_: Path) -> bool:
    return False


def files_of(paths: Iterable[Path], leaves_out: LeavesOut = _nothing) -> Gathered:
    """Each file once, folders as the files below them that are not left out.

    Hidden folders, links to folders, other file systems and folders of packages are not entered,
    and no more than 1,000 files in 10,000 folders are taken of one that is named. A folder that
    cannot be read, or holds nothing, is given as it is, so that whoever reads it says so.
    """
    every: dict[Path, bool] = {}
    cut: list[Path] = []
    for path in paths:
        found = list(islice(_below(path, leaves_out), _MOST_FILES + 1)) if path.is_dir() else []
        files = [each for each in found if each is not None][:_MOST_FILES]
        if len(files) < len(found):
            cut.append(path)
        for each in files or (path,):
            every.setdefault(each, bool(files))
    return Gathered(every, tuple(cut))


def _below(folder: Path, leaves_out: LeavesOut) -> Iterator[Path | None]:
    """The files below a folder; None at last, where there are too many folders to enter them."""
    device = folder.stat().st_dev
    for entered, (place, folders, names) in enumerate(os.walk(folder)):
        if entered == _MOST_FOLDERS:
            yield None
            return
        inner = (Path(place, each) for each in sorted(folders))
        folders[:] = [e.name for e in inner if _is_entered(e, device) and not leaves_out(e)]
        found = (Path(place, name) for name in sorted(names))
        mine = (each for each in found if not leaves_out(each))
        yield from (each for each in mine if _may_be_read(each) and each.is_file())


def _is_entered(folder: Path, device: int) -> bool:
    if folder.name.startswith(".") or folder.name in _NOT_ENTERED:
        return False
    try:
        return folder.lstat().st_dev == device
    except OSError:
        return False


def _may_be_read(path: Path) -> bool:
    if is_python(path.name):
        return _configures(path)
    is_config = path.suffix.lower() in _SUFFIXES or path.name in _NAMES
    return is_config and path.name not in _NO_CONFIGS


def _configures(path: Path) -> bool:
    """Whether a Python file may call what is read; tests call it to see it fail."""
    from tunec.compiler.lints.python_files import is_of_tests, may_configure

    try:
        return not is_of_tests(str(path)) and may_configure(read_bytes(path).decode("utf-8"))
    except (Unreadable, UnicodeDecodeError):
        return False
