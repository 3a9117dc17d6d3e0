"""Checks that the files of a bundle on disk can find each other, and that its run.sh is right."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from tunec.compiler.bundle import view_of
from tunec.compiler.driver import Compiled
from tunec.compiler.local_paths import View
from tunec.compiler.requirements import Asked
from tunec.compiler.start_commands import RUN
from tunec.compiler.target import Artifact, Json, Target
from tunec.compiler.verify.check import Check, Difference, Status
from tunec.compiler.verify.contract import Delivered
from tunec.compiler.verify.delivery import document
from tunec.schemas.dotted_paths import value_at

_PROGRAM: Final = "bundle"


def bare(target: Target, each: Artifact, text: str) -> str:
    """The text of a file, with paths to other files of its bundle reduced to their names.

    Each program is given the files that it reads side by side.
    """
    for path in _paths(target, each):
        text = text.replace(path, PurePosixPath(path).name)
    return text


def bare_values(target: Target, each: Artifact) -> Json:
    """The values of a file, with paths to other files of its bundle reduced to their names."""
    return _renamed(each.values, _paths(target, each))


def _paths(target: Target, each: Artifact) -> tuple[str, ...]:
    """The paths in a file that name other files of the bundle, if they contain a folder."""
    file = next(file for file in target.files if file.name == each.name)
    named = (value_at(each.values, key) for key in file.names)
    texts = (text for value in named for text in (value if isinstance(value, list) else [value]))
    names = tuple(text for text in texts if isinstance(text, str))
    return tuple(name for name in names if "/" in name and not _is_own(target, name))


def _is_own(target: Target, name: str) -> bool:
    """Whether a name is the whole name of one of the target's files."""
    return any(file.name == name for file in target.files)


def _renamed(values: Json, paths: Sequence[str]) -> Json:
    if isinstance(values, Mapping):
        return {key: _renamed(each, paths) for key, each in values.items()}
    if isinstance(values, list):
        return [_renamed(each, paths) for each in values]
    return PurePosixPath(values).name if values in paths else values


def bundle_checks(compiled: Compiled, asked: Sequence[Asked], folder: Path) -> Iterator[Check]:
    """Check a bundle on disk: each file that is named exists, and run.sh is as compiled."""
    spec = compiled.planned.loaded.spec
    name = spec.name if spec else ""
    if compiled.run is not None:
        yield _entry(name, compiled.run, folder / RUN)
    for target, _ in asked:
        for each in compiled.artifacts.get(target.name, ()):
            path = folder / target.name / each.name
            if path.is_file():
                yield from _named(name, target, each, path, folder)


def _entry(spec: str, wanted: Artifact, path: Path) -> Check:
    """Compare run.sh with the script that starts the plan, ignoring the digests in comments."""
    there = path.read_text("utf-8", "replace") if path.is_file() else None
    lost: tuple[Difference, ...] = ()
    if there is None:
        lost = (Difference("", "", path.as_posix(), "a file", None),)
    elif _commands(there) != _commands(wanted.text):
        command = _commands(there)[-1:] or [""]
        lost = (Difference("", "command", path.as_posix(), _commands(wanted.text)[-1], command[0]),)
    return _check(spec, path, lost)


def _commands(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def _named(spec: str, target: Target, each: Artifact, path: Path, folder: Path) -> Iterator[Check]:
    """Check that the files that a file names exist where its reader looks for them."""
    file = next(file for file in target.files if file.name == each.name)
    if not any(isinstance(value_at(each.values, key), str) for key in file.names):
        return
    text = path.read_text("utf-8", "replace")
    found = document(file, Delivered(each.name, path.as_posix(), text))
    root = folder / target.name if view_of(target, ".") != View(".") else folder
    lost = tuple(
        Difference("", "", (root / str(value_at(found, key))).as_posix(), "a file", None)
        for key in file.names
        if isinstance(value_at(each.values, key), str) and not _is_there(root, value_at(found, key))
    )
    yield _check(spec, path, lost, target.name)


def _is_there(root: Path, named: Json) -> bool:
    return isinstance(named, str) and (root / named).is_file()


def _check(spec: str, path: Path, lost: tuple[Difference, ...], reader: str = "bash") -> Check:
    status: Status = "differs" if lost else "same"
    return Check(spec, path.as_posix(), _PROGRAM, reader, status, differences=lost)
