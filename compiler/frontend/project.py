"""The project of a file: the directory that the files which it names must not leave.

A spec, or a config that is linted, may come from a stranger, and faults in a file that it names are
shown with its lines. Files that the command line itself names are read anywhere, unless somebody
else wrote the command line (`confined`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.diagnostics.wording import shortened
from tunec.compiler.frontend.disk import Unreadable, read_bytes
from tunec.compiler.frontend.faults import error
from tunec.schemas.source import COMMAND_LINE, Span
from tunec.schemas.source import Path as Place

_MARKS: Final = (".git", "pyproject.toml")


class Outside(Unreadable):
    """A file outside of the project, which is not read."""

    def __init__(self, root: Path) -> None:
        super().__init__("it lies outside the project")
        self.root = root


_WITHIN: Final[ContextVar[Path | None]] = ContextVar("where files that are named lie", default=None)


@contextmanager
def confined(root: Path) -> Iterator[None]:
    """Confine the paths of a command line to a directory, with links resolved."""
    token = _WITHIN.set(root.resolve())
    try:
        yield
    finally:
        _WITHIN.reset(token)


class Project(Struct, frozen=True):
    """The directory from which a file's paths start, and the one that they must not leave."""

    base: Path
    root: Path | None = None
    """None: they may lead anywhere."""

    def read(self, path: Path, named: Span) -> bytes:
        """The bytes of a file that is named at some place. Raises Outside, or Unreadable."""
        root = None if named.file == COMMAND_LINE else self.root
        require_inside(path, _WITHIN.get() if root is None else root)
        return read_bytes(path)


def require_inside(path: Path, root: Path | None) -> Path:
    """A path with links resolved. Raises Outside if it is not below a given directory."""
    try:
        full = path.resolve()
    except (OSError, ValueError, RuntimeError):
        raise Unreadable("there is no such file") from None
    if root is not None and not full.is_relative_to(root):
        raise Outside(root)
    return full


def project_root(path: Path) -> Path:
    """The directory that a file's paths must not leave: the nearest one that is a project.

    Without one, it is the working directory if the file is below it, else the file's own.
    """
    for directory in path.parents:
        if any((directory / mark).exists() for mark in _MARKS):
            return directory
    here = Path.cwd().resolve()
    return here if path.is_relative_to(here) else path.parent


def lies_outside(name: str, fault: Outside, span: Span | None, at: Place = ()) -> Diagnostic:
    """The error that a name leads out of the project."""
    return error(
        "E0202",
        f"`{shortened(name)}` lies outside the project",
        span,
        path=at,
        notes=(f"the project is the directory `{fault.root.name}` around the file that names it",),
        help="move the file into the project, or allow files outside it: --allow-outside",
    )
