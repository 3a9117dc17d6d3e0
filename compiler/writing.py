"""Writes files so that none is ever half written, and a set of files changes all at once.

A new directory is filled next to its final place and renamed. A set that goes into an existing
directory is written in two steps. First all files go into a directory inside it, whose new name
then marks the set as complete; only then is each file moved to its place. The next writer finishes
the moves of a run that was killed, and removes what such a run had not completed.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TextIO

STAGED: Final = ".tunec-staged"
"""Suffix of files and directories that are being written."""
COMPLETE: Final = ".tunec-complete"
"""The directory of a set that is fully written but not yet moved to its place."""
_STREAMS: Final = (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd"))
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_ONLY_DIRECTORY: Final = getattr(os, "O_DIRECTORY", 0)
"""Without it, opening a pipe in place of a directory would block for ever."""
_SCRIPT: Final = "#!"


class Unwritable(Exception):
    """Something cannot be written, or what is there cannot be read; the message says why."""


def write_all(files: Mapping[Path, str], folder: Path | None = None) -> list[Path]:
    """Write files, and return those that changed.

    All of them are below `folder` and form one set; without `folder` each is written alone. Pipes,
    terminals and devices are written to directly. Raises Unwritable, also for a link that leads out
    of the directory.
    """
    if folder is not None:
        with faults_of(folder):
            return _write_set(files, folder)
    changed = []
    for path, text in files.items():
        with faults_of(path):
            changed += [path] if _write(path, text) else []
    return changed


@contextmanager
def faults_of(path: Path) -> Iterator[None]:
    """Turn errors of the system into Unwritable, without naming temporary files."""
    try:
        yield
    except OSError as fault:
        named = "" if fault.filename is None else os.fsdecode(fault.filename)
        named = str(path) if not named or STAGED in named or COMPLETE in named else named
        raise Unwritable(f"cannot write {named}: {fault.strerror}") from None


def differing(files: Mapping[Path, str], folder: Path) -> dict[Path, str]:
    """The files of a set that differ from those on disk, and how they differ."""
    found: dict[Path, str] = {}
    if (folder / COMPLETE).exists():
        found[folder / COMPLETE] = "is left over from a run that was killed: write the files again"
    for path, text in files.items():
        there = _content(os.fspath(path))
        if there is None:
            found[path] = "is missing"
        elif there != text.encode():
            found[path] = "differs from what would be written"
    return found


# ── one file ─────────────────────────────────────────────────────────────────────────────────────


def _write(path: Path, text: str) -> bool:
    """Write a file unless it has that content already; return whether it was written."""
    if _is_stream(path):
        with open(path, "w", encoding="utf-8", newline="\n", opener=_as_it_is) as stream:
            stream.write(text)
        return True
    path = path.parent / _places((path.name,), os.fspath(path.parent))[path.name]
    place = os.fspath(path)
    with alone_in(_made(path.parent)):
        sweep(path.parent, path.name)
        if _content(place) == text.encode():
            return False
        staged = _staged(place)
        try:
            _create(staged, text, place, durable=True)
            os.replace(staged, place)  # noqa: PTH105
        finally:
            _remove(staged)
    return True


def _as_it_is(path: str, flags: int) -> int:
    """Open what exists, and create nothing."""
    return os.open(path, flags & ~os.O_CREAT)


def _is_stream(path: Path) -> bool:
    """Whether it is a pipe, a terminal or a device, which cannot be replaced by a file."""
    if Path.cwd().joinpath(path).parent in _STREAMS:
        return True
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextmanager
def replacing(path: Path, ready: Callable[[Path], None] = lambda _: None) -> Iterator[TextIO]:
    """A stream whose text replaces a file once it is complete and `ready` was called on it.

    The caller must hold the directory's lock and have swept it.
    """
    staged = Path(_staged(os.fspath(path)))
    try:
        with staged.open("x", encoding="utf-8", newline="\n") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        ready(staged)
        staged.replace(path)
    finally:
        _remove(os.fspath(staged))


def _create(staged: str, text: str, path: str, *, durable: bool) -> None:
    """Write the replacement of `path`, with its permissions; an OSError names `path`.

    A new script is executable. `durable`: the file is on disk when this returns.
    """
    try:
        kept = _mode(path)
        handle = os.open(staged, _NEW, 0o777 if text.startswith(_SCRIPT) else 0o666)
        try:
            content = memoryview(text.encode())
            while content:
                content = content[os.write(handle, content) :]
            if durable:
                os.fsync(handle)
        finally:
            os.close(handle)
        if kept is not None:
            os.chmod(staged, kept)  # noqa: PTH101
    except OSError as fault:
        raise OSError(fault.errno, fault.strerror, path) from None


def _mode(path: str) -> int | None:
    """The permissions of an existing file."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)  # noqa: PTH116
    except OSError:
        return None


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123  a third of the time of a Path
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise Unwritable(f"cannot read {path}: {fault.strerror}") from None


# ── a set ────────────────────────────────────────────────────────────────────────────────────────


def _write_set(files: Mapping[Path, str], folder: Path) -> list[Path]:
    texts = {path.relative_to(folder).as_posix(): text for path, text in files.items()}
    with alone_in(_made(folder.parent)):
        sweep(folder.parent, folder.name)
        is_new = not folder.exists()
        changed = put(texts, os.fspath(folder)) if is_new else set()
    if not is_new:
        with alone_in(folder):
            finish(os.fspath(folder))
            sweep(folder, COMPLETE)
            changed = put(texts, os.fspath(folder))
    return [path for path in files if path.relative_to(folder).as_posix() in changed]


def put(
    texts: Mapping[str, str], folder: str, within: str | None = None, *, durable: bool = True
) -> set[str]:
    """Put texts at their paths below a directory; return those that changed.

    The caller must hold the directory's lock and have swept it. No link may lead out of the
    directory, nor the directory out of `within`. If not `durable`, the caller must sync before
    relying on the files. Raises OSError and Unwritable.
    """
    if within is not None:
        _places((os.path.relpath(folder, within),), within)
    if not os.path.isdir(folder):  # noqa: PTH112  half the time of a pair of a fleet goes into calls
        _put_anew(texts, folder, durable=durable)
        return {*texts}
    places = _places(texts, folder)
    changed = {n for n, text in texts.items() if _content(f"{folder}/{n}") != text.encode()}
    if changed:
        _replace({places[name]: texts[name] for name in changed}, folder, durable=durable)
    return changed


def _put_anew(texts: Mapping[str, str], folder: str, *, durable: bool) -> None:
    staged = _staged(folder)
    try:
        _fill(staged, texts, folder, durable=durable)
        os.rename(staged, folder)  # noqa: PTH104
    finally:
        _remove(staged)


def _replace(texts: Mapping[str, str], folder: str, *, durable: bool) -> None:
    """Replace files below an existing directory; between two moves, `COMPLETE` exists too."""
    complete = f"{folder}/{COMPLETE}"
    staged = _staged(complete)
    try:
        for name in texts:
            if os.path.isdir(f"{folder}/{name}"):  # noqa: PTH112
                raise IsADirectoryError(0, "a directory is in its place", f"{folder}/{name}")
            os.makedirs(f"{folder}/{name}".rpartition("/")[0], exist_ok=True)  # noqa: PTH103
        _fill(staged, texts, folder, durable=durable)
        os.rename(staged, complete)  # noqa: PTH104
    finally:
        _remove(staged)
    finish(folder)


def _fill(staged: str, texts: Mapping[str, str], folder: str, *, durable: bool) -> None:
    """Write the files of a directory into another one, which is created."""
    os.makedirs(staged, exist_ok=True)  # noqa: PTH103
    made = {""}
    for name, text in texts.items():
        above = name.rpartition("/")[0]
        if above not in made:
            os.makedirs(f"{staged}/{above}", exist_ok=True)  # noqa: PTH103
            made.add(above)
        _create(f"{staged}/{name}", text, f"{folder}/{name}", durable=durable)


def finish(folder: str) -> None:
    """Move the files of a completed set, which a run left behind, to their places."""
    complete = f"{folder}/{COMPLETE}"
    if os.path.isdir(complete) and not os.path.islink(complete):  # noqa: PTH112, PTH114
        names = sorted(_files_below(complete))
        for name, place in _places(names, folder).items():
            os.makedirs(f"{folder}/{place}".rpartition("/")[0], exist_ok=True)  # noqa: PTH103
            os.replace(f"{complete}/{name}", f"{folder}/{place}")  # noqa: PTH105
    _remove(complete)


def _files_below(folder: str) -> Iterator[str]:
    for place, _, names in os.walk(folder):
        yield from (os.path.join(place, name)[len(folder) + 1 :] for name in names)  # noqa: PTH118


def _places(names: Iterable[str], folder: str) -> dict[str, str]:
    """The paths that links below a directory lead to; raises Unwritable if one leads out of it."""
    top = os.path.realpath(folder)
    inside = top.rstrip(os.sep) + os.sep
    above = {"": top}
    found: dict[str, str] = {}
    for name in names:
        head, _, own = name.rpartition("/")
        if head not in above:
            above[head] = os.path.realpath(f"{top}/{head}")
        full = f"{above[head]}/{own}"
        if os.path.islink(full):  # noqa: PTH114
            full = os.path.realpath(full)
        if not full.startswith(inside):
            said = f"a link leads out of {folder}, to {full}"
            raise Unwritable(f"cannot write {Path(folder, name)}: {said}")
        found[name] = full[len(inside) :].replace(os.sep, "/")
    return found


# ── what is on the way ───────────────────────────────────────────────────────────────────────────


def _staged(place: str) -> str:
    """The temporary path at which something is written before it is moved to its place."""
    above, name = os.path.split(place)
    return os.path.join(above, f".{name.lstrip('.')}.{os.getpid()}{STAGED}")  # noqa: PTH118


def _is_staged(name: str) -> bool:
    return name.startswith(".") and name.endswith(STAGED)


def sweep(folder: Path, name: str) -> None:
    """Remove temporary files of runs that were killed; no live run may be writing here."""
    beginning = f".{name.lstrip('.')}."
    with suppress(PermissionError, FileNotFoundError):
        for each in list(folder.iterdir()):  # a glob would take the name for a pattern
            if each.name.startswith(beginning) and _is_staged(each.name):
                _remove(os.fspath(each))


def settle(folder: Path) -> None:
    """Finish and sweep everything below a directory in which nobody else writes."""
    for place, folders, names in os.walk(folder):
        for name in filter(_is_staged, (*folders, *names)):
            _remove(f"{place}/{name}")
        folders[:] = [each for each in folders if not _is_staged(each)]
        if COMPLETE in folders:
            folders.remove(COMPLETE)
            finish(place)


def _remove(path: str) -> None:
    """Remove a file, or a directory with its contents, if it exists."""
    if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
        import shutil  # with what it imports, a hundredth of the time to start

        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def alone_in(folder: Path, *, waiting: bool = True) -> Iterator[None]:
    """Keep other writers out of a directory, if the system has file locks.

    Waits for another writer, or else raises Busy. The system releases the lock when this process
    and its children have ended.
    """
    handle = _opened(folder)
    try:
        if handle is not None and not _is_locked(handle, waiting=waiting):
            raise Busy(f"another run is writing in {folder}")
        yield
    finally:
        if handle is not None:
            os.close(handle)


class Busy(RuntimeError):
    """Another process is writing in a directory."""


def _opened(folder: Path) -> int | None:
    with suppress(OSError):  # Windows opens no directories
        return os.open(folder, os.O_RDONLY | _ONLY_DIRECTORY)
    return None


def _is_locked(handle: int, *, waiting: bool) -> bool:
    """Lock an open file; False if another process holds the lock."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | (0 if waiting else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except (ImportError, OSError):  # a system or a file system without locks
        pass
    return True
