"""What may be read for the sake of a file that names it, and where that is looked for."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from tunec.compiler.frontend.disk import Unreadable, read_bytes
from tunec.compiler.frontend.project import Outside, project_root, require_inside


class Reach(Struct, frozen=True):
    """A file may name those of its own project, and those that the command line names too."""

    named: frozenset[Path] = frozenset()
    """What the command line names, links followed."""
    allow_outside: bool = False

    def contents(self, wanted: Path, path: Path) -> Iterator[tuple[Path, bytes]]:
        """The files of that name that can be read and may be, nearest first."""
        root = self.root_of(path)
        for each in [wanted] if wanted.is_absolute() else near(wanted, path):
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
