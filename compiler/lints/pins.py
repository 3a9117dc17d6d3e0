"""The releases that a repository requires, from the files beside those that are linted.

For each package the nearest folder upward counts that names a release of it, within the project.
There a lock is believed before what people wrote, and that before what a README tells them to type.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from tunec.compiler.frontend.disk import Unreadable, read_bytes
from tunec.compiler.frontend.project import require_inside
from tunec.compiler.lints.environment import Pin
from tunec.compiler.lints.neighbours import called_as
from tunec.compiler.lints.reach import Reach
from tunec.compiler.lints.requirement_files import Stated, included, rank_of, stated

_MOST_NAMES: Final = 10_000
"""Names that are looked at in one folder."""
_MOST_INCLUDED: Final = 16
"""Files that one requirements file takes in."""


class Said(Struct, frozen=True):
    """A requirement, where it is written, and how early that is believed."""

    stated: Stated
    where: str
    rank: int


class Repository(Struct, frozen=True):
    """What files require, folder by folder; each folder is read once."""

    reach: Reach
    folders: dict[Path, Mapping[str, Pin]] = field(default_factory=dict)

    def pins(self, files: Iterable[Path]) -> Mapping[str, Pin]:
        """The pin of each package for a run of these files, the first of them before the rest."""
        found: dict[str, Pin] = {}
        for folder in dict.fromkeys(each.parent for each in files):
            for around in self.reach.folders(folder / "_"):
                for package, pin in self._of(around, folder / "_").items():
                    found.setdefault(package, pin)
        return found

    def _of(self, folder: Path, by: Path) -> Mapping[str, Pin]:
        if folder not in self.folders:
            self.folders[folder] = _chosen(self._said(folder, by))
        return self.folders[folder]

    def _said(self, folder: Path, by: Path) -> Iterator[Said]:
        for name in _names(folder):
            rank = rank_of(name)
            if rank is not None:
                yield from self._of_file(folder / name, rank, by)

    def _of_file(self, path: Path, rank: int, by: Path) -> Iterator[Said]:
        waiting, seen = [path], set[Path]()
        while waiting and len(seen) < _MOST_INCLUDED:
            file = waiting.pop()
            text = None if file in seen else self._text(file, by)
            seen.add(file)
            if text is None:
                continue
            for each in stated(file.name, text):
                yield Said(each, f"{called_as(file, by)}:{each.line}", rank)
            if file.suffix == ".txt":
                waiting += (file.parent / each for each in included(text))

    def _text(self, file: Path, by: Path) -> str | None:
        try:
            require_inside(file, self.reach.root_of(by))
            return read_bytes(file).decode("utf-8", "replace")
        except Unreadable:
            return None


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(e.name for _, e in zip(range(_MOST_NAMES), entries, strict=False))
    except OSError:
        return []


def _chosen(said: Iterable[Said]) -> Mapping[str, Pin]:
    by_package: dict[str, list[Said]] = {}
    for each in said:
        by_package.setdefault(each.stated.package, []).append(each)
    return {package: _pin(every) for package, every in by_package.items()}


def _pin(said: list[Said]) -> Pin:
    """What is believed first; of a range, the one release that something else names within it."""
    first = min(each.rank for each in said)
    held = [each for each in said if each.rank == first]
    pin = _of(held)
    if pin.exact is not None:
        return pin
    for each in sorted(said, key=lambda each: each.rank):
        exact = each.stated.exact
        if exact is not None and pin.contains(exact):
            return _of([each])
    return pin


def _of(held: list[Said]) -> Pin:
    ranges = dict.fromkeys(each.stated.releases for each in held)
    return Pin(held[0].stated.package, tuple(ranges), held[0].where)
