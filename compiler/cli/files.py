"""Writing files so that none is ever half there, and a set of them is the old one or the new one.

A new directory is filled beside its place and moved there. Into one that is there, a set goes in
two steps: all of it is written into a directory inside, whose new name then says that it is
complete; only after that is each file moved to its place. Whoever writes there next finishes the
moves of a run that was killed, and removes what such a run had not completed.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tunec.compiler.cli.session import Misuse

STAGED: Final = ".tunec-staged"
"""How the name of what is being written ends."""
COMPLETE: Final = ".tunec-complete"
"""The directory of a set that is written and not yet in its place."""
_STREAMS: Final = (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd"))


def write_all(files: Mapping[Path, str], folder: Path | None = None) -> list[Path]:
    """Write files, and return those that changed.

    All of them lie below `folder` and are one set; without it, each is written by itself. Pipes,
    terminals and devices are written to. Raises Misuse where something cannot be written, and where
    a link leads out of the directory.
    """
    if folder is not None:
        with _faults_of(folder):
            return _write_set(files, folder)
    changed = []
    for path, text in files.items():
        with _faults_of(path):
            changed += [path] if _write(path, text) else []
    return changed


@contextmanager
def _faults_of(path: Path) -> Iterator[None]:
    """What the system refuses, as Misuse; it names no file that nobody asked for."""
    try:
        yield
    except OSError as fault:
        is_ours = fault.filename is None or STAGED in os.fsdecode(fault.filename)
        named = path if is_ours else fault.filename
        raise Misuse(f"cannot write {named}: {fault.strerror}") from None


def differing(files: Mapping[Path, str], folder: Path) -> dict[Path, str]:
    """Which files of a set are not on disk as they should be, and how they differ."""
    found: dict[Path, str] = {}
    if (folder / COMPLETE).exists():
        found[folder / COMPLETE] = "is left of a run that was killed: write the files again"
    for path, text in files.items():
        there = _text_at(path)
        if there is None:
            found[path] = "is missing"
        elif there != text:
            found[path] = "differs from what would be written"
    return found


# ── one file ─────────────────────────────────────────────────────────────────────────────────────


def _write(path: Path, text: str) -> bool:
    """Write a file unless it is there as it should be; return whether it was written."""
    if _is_stream(path):
        with open(path, "w", encoding="utf-8", newline="\n", opener=_as_it_is) as stream:
            stream.write(text)
        return True
    path = _behind(path, path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _alone_in(path.parent):
        _sweep(path.parent, path.name)
        if _text_at(path) == text:
            return False
        staged = _staged(path)
        try:
            _create(staged, text, path)
            staged.replace(path)
        finally:
            staged.unlink(missing_ok=True)
    return True


def _as_it_is(path: str, flags: int) -> int:
    """Open what is there, and make nothing."""
    return os.open(path, flags & ~os.O_CREAT)


def _is_stream(path: Path) -> bool:
    """Whether it is a pipe, a terminal or a device, which no file replaces."""
    if Path.cwd().joinpath(path).parent in _STREAMS:
        return True
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _behind(path: Path, folder: Path) -> Path:
    """The file that a path leads to by links; Misuse where that is not below the directory."""
    full = path.resolve()
    if full.is_relative_to(folder.resolve()):
        return full if path.is_symlink() else path
    raise Misuse(f"cannot write {path}: a link leads out of {folder}, to {full}")


def _create(staged: Path, text: str, path: Path) -> None:
    """Write what is to replace `path`, with its permissions; OSError names `path`."""
    try:
        with staged.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        mode = _mode(path, text)
        if mode is not None:
            staged.chmod(mode)
    except OSError as fault:
        raise OSError(fault.errno, fault.strerror, str(path)) from None


def _mode(path: Path, text: str) -> int | None:
    """The permissions of the file that is there; a new script can be run, and others are usual."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return 0o755 if text.startswith("#!") else None


def _text_at(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise Misuse(f"cannot read {path}: {fault.strerror}") from None


# ── a set ────────────────────────────────────────────────────────────────────────────────────────


def _write_set(files: Mapping[Path, str], folder: Path) -> list[Path]:
    places = {path: _behind(path, folder) for path in files}
    with _alone_in(_made(folder.parent)):
        _sweep(folder.parent, folder.name)
        if not folder.exists():
            _put_anew(files, folder)
            return list(files)
    with _alone_in(folder):
        _finish(folder)
        _sweep(folder, COMPLETE)
        changed = [path for path, text in files.items() if _text_at(places[path]) != text]
        if changed:
            _replace({places[path]: files[path] for path in changed}, folder)
    return changed


def _put_anew(files: Mapping[Path, str], folder: Path) -> None:
    staged = _staged(folder)
    try:
        for path, text in files.items():
            place = staged / path.relative_to(folder)
            _create(_in_made(place), text, path)
        staged.mkdir(exist_ok=True)
        staged.rename(folder)
    finally:
        _remove(staged)


def _replace(files: Mapping[Path, str], folder: Path) -> None:
    """Put files below a directory that is there: between two moves, `COMPLETE` is there too."""
    staged, top = _staged(folder / COMPLETE), folder.resolve()
    try:
        staged.mkdir()
        for path, text in files.items():
            if path.is_dir():
                raise IsADirectoryError(0, "a directory is in its place", str(path))
            _create(_in_made(staged / path.resolve().relative_to(top)), text, path)
            _in_made(path)
        staged.rename(folder / COMPLETE)
    finally:
        _remove(staged)
    _finish(folder)


def _finish(folder: Path) -> None:
    """Move what is complete to its places."""
    complete = folder / COMPLETE
    for file in sorted(complete.rglob("*")):
        if not file.is_dir():
            file.replace(_in_made(folder / file.relative_to(complete)))
    _remove(complete)


# ── what is on the way ───────────────────────────────────────────────────────────────────────────


def _staged(place: Path) -> Path:
    """Where something is written before it takes its place."""
    return place.with_name(f".{place.name.lstrip('.')}.{os.getpid()}{STAGED}")


def _sweep(folder: Path, name: str) -> None:
    """Remove what runs that were killed had begun to write; of those that live, none is here."""
    beginning = f".{name.lstrip('.')}."
    with suppress(PermissionError):
        for each in list(folder.iterdir()):  # a glob would take the name for a pattern
            if each.name.startswith(beginning) and each.name.endswith(STAGED):
                _remove(each)


def _remove(path: Path) -> None:
    """Remove a file, or a directory with all that is in it, if it is there."""
    if path.is_dir() and not path.is_symlink():
        import shutil  # with what it imports, a hundredth of the time to start

        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _in_made(path: Path) -> Path:
    """A path whose directory is there now."""
    _made(path.parent)
    return path


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Wait for others that write into a directory; where the system has no locks, for nobody."""
    handle = None
    with suppress(ImportError, OSError):  # a system or a file system without locks
        import fcntl

        handle = os.open(folder, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)
