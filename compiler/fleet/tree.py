"""The files of a tree: found with few calls, and put in their places whole."""

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from tunec.compiler import writing
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


def put(folder: str, root: str, texts: Mapping[str, str]) -> tuple[str, ...]:
    """Put the files of a pair in their places, by their paths below its directory.

    The tree below `root` is this build's alone, and was tidied. Returns what else lies there.
    """
    is_there = os.path.isdir(folder)  # noqa: PTH112  a third of the time of a Path
    if texts:
        with writing.faults_of(Path(folder)):
            writing.put(texts, folder, root, durable=False)
    return tuple(sorted(files_below(folder).keys() - texts.keys())) if is_there else ()
