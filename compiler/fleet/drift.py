"""Drift: how a tree differs from what its fleet compiles to, and why."""

import os
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Literal

from msgspec import Struct

from tunec.compiler.fleet.lock import LockedPair, TreeState, is_own, lock_lines, read_lock
from tunec.compiler.fleet.pair import Builder
from tunec.compiler.fleet.pairing import Task, beside, tasks
from tunec.compiler.fleet.selection import Selection
from tunec.compiler.fleet.tree import are_older, files_below

Kind = Literal["edited", "missing", "stale", "not built", "orphan"]


class Drift(Struct, frozen=True, order=True):
    """One difference between a tree and its fleet."""

    path: str
    """The path below the tree of a file, or of a pair's directory."""
    kind: Kind
    why: str = ""

    def __str__(self) -> str:
        """`build/a/b/ds_config.json: edited`."""
        return f"{self.path}: {self.kind}" + (f" ({self.why})" if self.why else "")


def strays(folder: str, artifacts: Mapping[str, str], said: TreeState) -> tuple[str, ...] | None:
    """Files of a pair's directory that the lock does not name; None where one it names is not so.

    A file that is older than the lock was not touched after it; only younger ones are read. Where
    it is `said` that files were alone, directories that are older have not been touched either.
    """
    if said.are_alone and artifacts and are_older(folder, tuple(artifacts), said.since):
        return ()
    found = files_below(folder)
    for name, digest in artifacts.items():
        changed = found.get(name, -1)
        if changed < 0 or (changed > said.since and _digest(f"{folder}/{name}") != digest):
            return None
    return tuple(sorted(found.keys() - artifacts.keys())) if len(found) > len(artifacts) else ()


def file_drifts(root: Path, locked: LockedPair) -> Iterator[Drift]:
    """The files of a pair that are missing or were edited; every file is read."""
    where = _where(locked)
    for name, digest in locked.artifacts.items():
        found = _digest(f"{root}/{where}/{name}")
        if found is None:
            yield Drift(f"{where}/{name}", "missing")
        elif found != digest:
            yield Drift(f"{where}/{name}", "edited", "differs from what was written")


def edited(root: Path, tasks_to_write: Iterable[Task]) -> Iterator[Drift]:
    """The edited files that a build of these pairs would overwrite."""
    wanted = {(spec, site.name) for spec, site in tasks_to_write}
    for locked in read_lock(root, whole=False):
        if locked.pair in wanted:
            yield from (each for each in file_drifts(root, locked) if each.kind == "edited")


def drifts(builder: Builder) -> Iterator[Drift]:
    """All differences, pair by pair: files, then their inputs, then files that are left over."""
    selection, root = builder.reader.selection, builder.folder
    for task, locked in beside(tasks(selection), read_lock(root, whole=False)):
        if task is None:
            if locked is not None:
                yield Drift(_where(locked), "stale", "the fleet no longer selects it")
        elif locked is None:
            yield Drift(f"{task[0]}/{task[1].name}", "not built")
        else:
            changed = builder.reader.inputs(*task).changed(locked.inputs)
            if changed:
                yield Drift(_where(locked), "stale", f"changed since: {', '.join(changed)}")
            yield from file_drifts(root, locked)
    yield from orphans(root, selection)


def _where(locked: LockedPair) -> str:
    return f"{locked.pair.spec}/{locked.pair.cluster}"


def _digest(path: str) -> str | None:
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123  a third of the time of a Path
            return sha256(file.read()).hexdigest()
    except OSError:
        return None


def orphans(root: Path, selection: Selection) -> Iterator[Drift]:
    """Files of the tree that belong to no pair, and directories of pairs that are not selected.

    A pair without a line in the lock is being built, and has no orphans.
    """
    yield from outside(root, selection)
    sites = {site.name for site in selection.sites}
    for line in lock_lines(root):
        if line.pair.spec in selection.specs and line.pair.cluster in sites:
            where = f"{line.pair.spec}/{line.pair.cluster}"
            there = files_below(f"{root}/{where}").keys() - line.files()
            yield from inside(where, sorted(there))


def inside(where: str, names: Iterable[str]) -> Iterator[Drift]:
    """Files in a pair's directory that the pair did not write."""
    return (Drift(f"{where}/{name}", "orphan") for name in names)


def outside(root: Path, selection: Selection) -> Iterator[Drift]:
    """Files outside the directories of pairs."""
    sites = {site.name for site in selection.sites}
    for path in _strays(root, selection, sites):
        yield Drift(path.relative_to(root).as_posix(), "orphan")


def _strays(root: Path, selection: Selection, sites: set[str]) -> Iterator[Path]:
    """Entries outside the directories of pairs."""
    for entry in visible(root):
        if entry.name not in selection.specs and not is_own(entry.name):
            yield from _files(entry)
    for spec in selection.specs:
        for name in sorted(_names(root / spec) - sites):
            yield from _files(root / spec / name)


def visible(root: Path) -> list[Path]:
    """The entries of a tree, without those of a repository (`.git`, `.gitattributes`)."""
    return [entry for entry in _entries(root) if not entry.name.startswith(".")]


def _names(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))  # noqa: PTH208  a tenth of the time of as many paths
    except (FileNotFoundError, NotADirectoryError):
        return set()


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir() and not path.is_symlink():
        for entry in _entries(path):
            yield from _files(entry)
    elif path.exists() or path.is_symlink():
        yield path


def prune(root: Path, found: Iterable[Drift]) -> list[str]:
    """Remove orphans, and directories that become empty; return what was removed."""
    removed: list[str] = []
    for each in list(found):
        if each.kind == "orphan":
            file = root / each.path
            file.unlink(missing_ok=True)
            removed.append(each.path)
            _remove_empty(file.parent, root)
    return removed


def _remove_empty(folder: Path, root: Path) -> None:
    while folder != root and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent
