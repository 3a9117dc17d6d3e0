"""Reads files from disk: only regular files, and only up to a maximum size."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from tunec.compiler.diagnostics.wording import did_you_mean, nearest
from tunec.compiler.frontend.text import ENDING, MAX_BYTES


class Unreadable(Exception):
    """A file cannot be read; the message says why."""


_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Opening a pipe must not wait for a writer."""


_MOST_FILES: Final = 1_000
_MOST_FOLDERS: Final = 2_000
_LONGEST: Final = 400_000
"""Bytes of a file; longer ones are data."""
_NOT_ENTERED: Final = frozenset({"__pycache__", "node_modules", "site-packages"})

_OF_NOTEBOOK: Final = 16 << 20
"""A notebook embeds its images, which are skipped before it is parsed."""

Instead = Callable[[Path], bytes | None]
"""Bytes to use instead of a file's own, such as an editor's buffer; None: use the file."""

_INSTEAD: Final[ContextVar[Instead | None]] = ContextVar("instead of the disk", default=None)


@contextmanager
def reading(instead: Instead) -> Iterator[None]:
    """Use other bytes instead of those on disk, wherever files are read meanwhile."""
    token = _INSTEAD.set(instead)
    try:
        yield
    finally:
        _INSTEAD.reset(token)


def read_bytes(path: Path, most: int | None = None) -> bytes:
    """The bytes of a regular file, at most one more than allowed; raise Unreadable.

    `most`: the allowed number; by default, that of a file that a person writes.
    """
    instead = _INSTEAD.get()
    found = None if instead is None else instead(path)
    most = most or (_OF_NOTEBOOK if path.suffix == ENDING else MAX_BYTES)
    return _on_disk(path, most) if found is None else found


def _on_disk(path: Path, most: int) -> bytes:
    try:
        with os.fdopen(os.open(path, _FLAGS), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Unreadable("it is not a regular file")
            return file.read(most + 1)
    except FileNotFoundError:
        raise Unreadable("there is no such file") from None
    except IsADirectoryError:
        raise Unreadable("it is a directory") from None
    except (OSError, ValueError) as fault:
        raise Unreadable((getattr(fault, "strerror", None) or "no such name").lower()) from None


def near_files(path: Path) -> str | None:
    """A help text with the file of the directory that was probably meant."""
    if os.path.lexists(path):
        return None
    try:
        names = sorted(entry.name for entry in path.parent.iterdir())[:1000]
    except (OSError, ValueError):
        return None
    return did_you_mean(nearest(path.name, [each for each in names if each != path.name]))


def texts_below(root: Path, endings: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Files whose names end so, each by its path with its text: no more and no longer than read."""
    for path in _files(root, endings):
        try:
            content = read_bytes(path)
        except Unreadable:
            continue
        if len(content) <= _LONGEST:
            yield path.as_posix(), content.decode("utf-8", "replace")


def _files(root: Path, endings: tuple[str, ...]) -> Iterator[Path]:
    count = 0
    for entered, (place, folders, names) in enumerate(os.walk(root)):
        if entered == _MOST_FOLDERS or count >= _MOST_FILES:
            return
        folders[:] = sorted(each for each in folders if _is_entered(each))
        for name in sorted(each for each in names if each.endswith(endings)):
            count += 1
            yield Path(place, name)


def _is_entered(name: str) -> bool:
    return not name.startswith(".") and name not in _NOT_ENTERED
