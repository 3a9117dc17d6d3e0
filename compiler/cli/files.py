"""Writing files so that none is ever half there."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from stat import S_IMODE

from tunec.compiler.cli.session import Misuse


def write_all(files: Mapping[Path, str]) -> list[Path]:
    """Write every file beside its place first, then move them all; return those that changed.

    Raises Misuse where a directory or file cannot be written; nothing has been replaced then,
    unless a move itself failed.
    """
    changed = [path for path, text in files.items() if _text_at(path) != text]
    staged: list[tuple[Path, Path]] = []
    try:
        staged.extend((_stage(path, files[path]), path) for path in changed)
        for temporary, path in staged:
            temporary.replace(path)
    except OSError as fault:
        raise Misuse(f"cannot write {fault.filename}: {fault.strerror}") from None
    finally:
        for temporary, _ in staged:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
    return changed


def _stage(path: Path, text: str) -> Path:
    import tempfile  # with what it imports, a hundredth of the time to start

    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as fault:  # it would name the file beside it, which nobody asked for
        raise OSError(fault.errno, fault.strerror, str(path)) from None
    staged = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        staged.chmod(_mode(path, text))
    except OSError as fault:
        staged.unlink()
        raise OSError(fault.errno, fault.strerror, str(path)) from None
    return staged


def _mode(path: Path, text: str) -> int:
    """The permissions that a file has, or those that are usual for a new one of its kind."""
    try:
        return S_IMODE(path.stat().st_mode)
    except OSError:
        return 0o755 if text.startswith("#!") else 0o644


def differing(files: Mapping[Path, str]) -> dict[Path, str]:
    """Which files are not on disk as they should be, and how they differ."""
    found: dict[Path, str] = {}
    for path, text in files.items():
        there = _text_at(path)
        if there is None:
            found[path] = "is missing"
        elif there != text:
            found[path] = "differs from what would be written"
    return found


def _text_at(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise Misuse(f"cannot read {path}: {fault.strerror}") from None
