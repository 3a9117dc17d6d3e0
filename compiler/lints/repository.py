"""What may be read for the sake of a file that is linted, and what the repository around it says.

For each package the nearest folder upward counts that names a release of it, within the project.
There a lock is believed before what people wrote, and that before what a README tells them to type.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from tunec.compiler.frontend.disk import Unreadable, read_bytes
from tunec.compiler.frontend.notebook import is_notebook
from tunec.compiler.frontend.project import Outside, project_root, require_inside
from tunec.compiler.lints.environment import Pin
from tunec.compiler.lints.requirement_files import (
    Stated,
    included,
    of_notebook,
    rank_of,
    stated,
)

_MOST_NAMES: Final = 10_000
"""Names that are looked at in one folder."""
_MOST_INCLUDED: Final = 16
"""Files that one requirements file takes in."""


class Reach(Struct, frozen=True):
    """A file may name those of its own project, and those that the command line names too."""

    named: frozenset[Path] = frozenset()
    """What the command line names, links followed."""
    allow_outside: bool = False

    def contents(self, wanted: Path, path: Path, folder: str = "") -> Iterator[tuple[Path, bytes]]:
        """The files of that name that can be read and may be: in the folder first, then nearest."""
        root = self.root_of(path)
        inside = near(Path(folder, wanted), path) if folder else ()
        for each in [wanted] if wanted.is_absolute() else (*inside, *near(wanted, path)):
            try:
                if require_inside(each, None) not in self.named:
                    require_inside(each, root)
                yield each, read_bytes(each)
            except Unreadable:
                continue

    def leaves_out(self, wanted: Path, path: Path) -> bool:
        """Whether a file is not read since it lies outside the project.

        That is so where the name leads out by itself, and where a file is found further up.
        """
        root = self.root_of(path)
        if _is_outside(path.resolve().parent / wanted, root):
            return True
        return any(_is_outside(each, root) and each.is_file() for each in near(wanted, path))

    def admits(self, found: Path, path: Path) -> bool:
        """Whether what lies at a place may be looked into for the sake of a file."""
        return not _is_outside(found, self.root_of(path))

    def root_of(self, path: Path) -> Path | None:
        """The directory that a file's names may not leave; None: they may lead anywhere."""
        return None if self.allow_outside else project_root(path.resolve())

    def folders(self, path: Path) -> Iterator[Path]:
        """The folders around a file, nearest first, up to the root of its project."""
        full = path.resolve()
        root = project_root(full)
        yield from (each for each in full.parents if each.is_relative_to(root))


def reach_of(paths: Iterable[Path], *, allow_outside: bool = False) -> Reach:
    """How far files reach that a command line names."""
    return Reach(frozenset(_resolved(paths)), allow_outside)


def _resolved(paths: Iterable[Path]) -> Iterator[Path]:
    for each in paths:
        with suppress(Unreadable):
            yield require_inside(each, None)


def _is_outside(path: Path, root: Path | None) -> bool:
    try:
        require_inside(path, root)
    except Unreadable as fault:
        return isinstance(fault, Outside)
    return False


def near(wanted: Path, path: Path) -> Iterator[Path]:
    """Beside the file that names it, in the directories around that, where the command runs."""
    yield from (folder / wanted for folder in path.resolve().parents)
    yield wanted


def called_as(found: Path, by: Path) -> Path:
    """A file that another one names: from the working directory, as that one is called."""
    return found if by.is_absolute() else Path(os.path.relpath(found))


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
        every, found = tuple(files), dict[str, Pin]()
        for each in filter(lambda path: is_notebook(path.name), every):
            found = {**_chosen(self._of_cells(each)), **found}
        for folder in dict.fromkeys(each.parent for each in every):
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

    def _of_cells(self, path: Path) -> Iterator[Said]:
        """What a notebook installs itself, which holds for no other file."""
        text = self._text(path, path)
        for each in () if text is None else of_notebook(text, path.name):
            yield Said(each, f"{called_as(path, path)}:{each.line}", 0)

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


_MOST_FILES: Final = 1_000
_MOST_FOLDERS: Final = 2_000
_LONGEST: Final = 400_000
"""Bytes of a file; what is longer is data."""
_NOT_ENTERED: Final = frozenset({"__pycache__", "node_modules", "site-packages"})
_FIELD: Final = re.compile(
    r"(?m)^[ \t]+([A-Za-z_]\w*)[ \t]*:[ \t]*([A-Za-z_][^=\n#]*?)[ \t]*(?:=|$)"
)
"""`name: type = default` in the body of a class."""
_CLASS: Final = re.compile(r"(?m)^(?=[^\s#)])")
"""Where something begins at the left margin: a class, whose body follows, or what ends one."""
_LEAST_DECLARED, _SHARE_DECLARED = 8, 0.8
"""Keys of a file, and their share, that are fields of one class."""
_FLAG: Final = re.compile(r"""["']--([A-Za-z][\w-]*)["']""")
_WORD: Final = re.compile(r"""["']([A-Za-z][\w.-]{2,40})["']""")
_READ: Final = re.compile(
    r"""\[\s*["'](\w+)["']\s*\]|\.(?:get|pop)\(\s*["'](\w+)["']|getattr\([^,()]+,\s*["'](\w+)["']"""
    r"""|\b\w*(?:args|config|cfg|conf|params|opt|algo)\.(?!(?:get|pop)\()(\w+)""",
)
"""How a script takes a setting out of what it has read."""
_SET: Final = re.compile(r"\b\w*(?:args|config|cfg)\.(\w+)\s*=(?!=)")
"""How a script sets a setting itself, whatever was read."""
_LOADS: Final = re.compile(
    r"yaml\.(?:safe_|full_)?load\(|json\.load\(|OmegaConf\.load\(|tomllib\.load\(|toml\.load\("
)
_PARSES: Final = re.compile(r"TrlParser|HfArgumentParser|H4ArgumentParser")
_LEAST_READ, _SHARE_READ = 3, 0.5
"""Keys, and their share, that a script takes out of a file which it reads by itself."""
_EVERYWHERE: Final = frozenset({"none", "null", "auto", "true", "false", "default", "all", "full"})
"""Words that any script quotes for something else."""


class OwnSource(Struct, frozen=True, dict=True):
    """The Python files of a repository; they are read when somebody asks."""

    roots: tuple[Path, ...] = ()

    def declares(self, name: str, *, as_flag: bool = False) -> bool:
        """Whether a class has a field of that name, or, for flags, a parser has it."""
        return name in self._fields or (as_flag and name.replace("-", "_") in self._flags)

    def takes(self, name: str) -> bool:
        """Whether some file takes a setting of that name out of something."""
        return name in self._taken

    def sets(self, name: str) -> bool:
        """Whether some file sets a setting of that name itself."""
        return name in self._set

    def reads_itself(self, keys: Iterable[str]) -> bool:
        """Whether a script loads such a file, and takes most of these keys out of it.

        One that hands it to a parser of arguments reads it as that parser does.
        """
        wanted = frozenset(keys)
        least = max(_LEAST_READ, _SHARE_READ * len(wanted))
        if any(len(wanted & each) >= least for each in self._by_loaders):
            return True
        is_alone = bool(self._by_loaders) and not self.shows(_PARSES)
        return is_alone and len(wanted & self._taken) >= least

    def declares_in_one(self, keys: Iterable[str]) -> bool:
        """Whether one class has nearly all of these keys for fields: a file is made of it."""
        wanted = frozenset(keys)
        least = max(_LEAST_DECLARED, _SHARE_DECLARED * len(wanted))
        return any(len(wanted & each) >= least for each in self._classes)

    def makes_no(self, pattern: re.Pattern[str]) -> bool:
        """Whether its scripts load files by themselves, and none has what the pattern finds."""
        return bool(self._by_loaders) and not self.shows(pattern)

    def type_of(self, name: str) -> str:
        """The annotation of a field as it is written; empty where no class has it."""
        return self._fields.get(name, "")

    def quotes(self, word: str) -> bool:
        """Whether some file has the word as a text."""
        return word not in _EVERYWHERE and word in self._words

    def holds(self, text: str) -> bool:
        """Whether some file has a text."""
        if text not in self._held:
            self._held[text] = any(text in each for each in self._texts)
        return self._held[text]

    def shows(self, pattern: re.Pattern[str]) -> bool:
        """Whether a pattern is found in some file."""
        if pattern not in self._shown:
            self._shown[pattern] = any(pattern.search(text) for text in self._texts)
        return self._shown[pattern]

    def lacks(self, text: str) -> bool:
        """Whether there are files, and none has a text."""
        return bool(self._texts) and not self.holds(text)

    @cached_property
    def _held(self) -> dict[str, bool]:
        return {}

    @cached_property
    def _shown(self) -> dict[re.Pattern[str], bool]:
        return {}

    @cached_property
    def _texts(self) -> tuple[str, ...]:
        return tuple(text for root in self.roots for text in _texts(root))

    @cached_property
    def _taken(self) -> frozenset[str]:
        return frozenset(name for text in self._texts for name in _taken_in(text))

    @cached_property
    def _set(self) -> frozenset[str]:
        return frozenset(each[1] for text in self._texts for each in _SET.finditer(text))

    @cached_property
    def _by_loaders(self) -> tuple[frozenset[str], ...]:
        """What each script takes that loads files, and parses no arguments of a trainer."""
        texts = (text for text in self._texts if _LOADS.search(text) and not _PARSES.search(text))
        return tuple(frozenset(_taken_in(text)) for text in texts)

    @cached_property
    def _fields(self) -> dict[str, str]:
        return {each[1]: each[2] for text in self._texts for each in _FIELD.finditer(text)}

    @cached_property
    def _classes(self) -> tuple[frozenset[str], ...]:
        bodies = (body for text in self._texts for body in _CLASS.split(text)[1:])
        return tuple(frozenset(each[1] for each in _FIELD.finditer(body)) for body in bodies)

    @cached_property
    def _flags(self) -> frozenset[str]:
        found = (each[1] for text in self._texts for each in _FLAG.finditer(text))
        return frozenset(name.replace("-", "_") for name in found)

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(each[1] for text in self._texts for each in _WORD.finditer(text))


def _taken_in(text: str) -> Iterator[str]:
    found = (group for each in _READ.finditer(text) for group in each.groups())
    return (group for group in found if group)


def own_source(files: Iterable[Path], reach: Reach) -> OwnSource:
    """The source of the projects that some files lie in."""
    roots = (reach.root_of(each) for each in files)
    return OwnSource(tuple(dict.fromkeys(root for root in roots if root is not None)))


def _texts(root: Path) -> Iterator[str]:
    for path in _files(root):
        try:
            content = read_bytes(path)
        except Unreadable:
            continue
        if len(content) <= _LONGEST:
            yield content.decode("utf-8", "replace")


def _files(root: Path) -> Iterator[Path]:
    count = 0
    for entered, (place, folders, names) in enumerate(os.walk(root)):
        if entered == _MOST_FOLDERS or count >= _MOST_FILES:
            return
        folders[:] = sorted(each for each in folders if _is_entered(each))
        for name in sorted(each for each in names if each.endswith(".py")):
            count += 1
            yield Path(place, name)


def _is_entered(name: str) -> bool:
    return not name.startswith(".") and name not in _NOT_ENTERED
