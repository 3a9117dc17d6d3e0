"""The files of a tree: found with few calls, and put in their places whole."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from tunec.compiler.fleet.lock import STAGED
from tunec.schemas.caches import cached


def files_below(folder: str, under: str = "") -> dict[str, int]:
    """Every file by its path below a directory, and when it was last changed, in nanoseconds.

    The later of the times of content and of name and mode: of these, the second cannot be set back.
    What is no regular file has the time -1. Links to directories are not followed.
    """
    found: dict[str, int] = {}
    try:
        entries = os.scandir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return found
    with entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                found |= files_below(entry.path, f"{under}{entry.name}/")
            else:
                found[f"{under}{entry.name}"] = _changed(entry)
    return found


def are_older(folder: str, names: tuple[str, ...], since: int) -> bool:
    """Whether some files and all directories on the way to them were last changed before a time.

    A directory is changed when something is put into it, removed or called otherwise.
    """
    try:
        for path in _with_folders(names):
            found = os.stat(f"{folder}{path}")  # noqa: PTH116  a third of the time of a Path
            if found.st_mtime_ns > since or found.st_ctime_ns > since:
                return False
    except OSError:
        return False
    return True


@cached(64)
def _with_folders(names: tuple[str, ...]) -> tuple[str, ...]:
    """Paths of files below a directory, with those of all directories on the way."""
    above = {str(each) for name in names for each in PurePosixPath("/", name).parents}
    return (*above, *(f"/{name}" for name in names))


def _changed(entry: "os.DirEntry[str]") -> int:
    try:
        if not entry.is_file():
            return -1
        found = entry.stat()
    except OSError:
        return -1
    content, name = found.st_mtime_ns, found.st_ctime_ns
    return max(name, content)


def put(folder: str, texts: Mapping[str, str]) -> tuple[str, ...]:
    """Put the files of a pair in their places, by their paths below its directory.

    A new directory is filled beside its place and moved there; in one that is there, each file is.
    So every file is the old one or the new one at any moment. Returns what else lies there.
    """
    if os.path.isdir(folder):  # noqa: PTH112  half the time of a pair is spent in calls like these
        for name, text in texts.items():
            _replace(Path(folder, name), text)
        return tuple(sorted(files_below(folder).keys() - texts.keys()))
    if texts:
        _put_anew(folder, texts)
    return ()


def _put_anew(folder: str, texts: Mapping[str, str]) -> None:
    above, _, own = folder.rpartition("/")
    staged = f"{above}/.{own}.{os.getpid()}{STAGED}"
    made: set[str] = set()
    for name, text in texts.items():
        path = f"{staged}/{name}"
        parent = path.rpartition("/")[0]
        if parent not in made:
            os.makedirs(parent, exist_ok=True)  # noqa: PTH103
            made.add(parent)
        _write(path, text)
    try:
        os.rename(staged, folder)  # noqa: PTH104
    except OSError:
        shutil.rmtree(staged, ignore_errors=True)
        raise


def _replace(path: Path, text: str) -> None:
    """Put a text in its place by a rename, unless it is there."""
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
    elif _is(path, text):
        return
    staged = path.with_name(f".{path.name}.{os.getpid()}{STAGED}")
    staged.unlink(missing_ok=True)
    _write(os.fspath(staged), text)
    staged.replace(path)


def _write(path: str, text: str) -> None:
    """Write a file that is not there; a script can be run."""
    mode = 0o777 if text.startswith("#!") else 0o666
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
    try:
        content = memoryview(text.encode())
        while content:
            content = content[os.write(handle, content) :]
    finally:
        os.close(handle)


def _is(path: Path, text: str) -> bool:
    try:
        return path.read_bytes() == text.encode()
    except FileNotFoundError:
        return False
