"""Entries of a catalogue: one YAML file each, named after its entry.

There is no index: a file's name is found in the list of the folder, and for any other name (an
alias, a repository) only the heads of the files are read, which takes a millisecond or two per
folder.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tunec.schemas.caches import cached
from tunec.schemas.shape import Shape
from tunec.schemas.source import Path as Place

ShapeT = TypeVar("ShapeT", bound=Shape)

_ENDING = ".yaml"


Completion = Callable[[Any, Path], Any]
"""Adds to a file's data what the file names elsewhere."""


class BrokenEntry(Exception):
    """A file of the catalogue that does not match its shape.

    `place` is the key that `reason` refers to; `shape` is the shape of the whole file, once
    `completed` has added to its data.
    """

    def __init__(
        self,
        file: Path,
        reason: str,
        place: Place = (),
        help: str | None = None,
        shape: type[Shape] | None = None,
        completed: Completion | None = None,
    ) -> None:
        super().__init__(f"{file}: {reason}")
        self.file, self.reason, self.place, self.help = file, reason, place, help
        self.shape, self.completed = shape, completed


@cached(16)
def names_in(folder: Path) -> tuple[str, ...]:
    """The names of a folder's entries, sorted."""
    found = (entry.name for entry in folder.iterdir())
    return tuple(sorted(name.removesuffix(_ENDING) for name in found if name.endswith(_ENDING)))


def read_entry(
    folder: Path, name: str, shape: type[ShapeT], completed: Completion | None = None
) -> ShapeT:
    """Read one entry whole. Raises BrokenEntry."""
    found = read_file(folder / f"{name}{_ENDING}", shape, completed)
    own = getattr(found, "name", name)
    if own != name:
        reason = f"the file is called `{name}` and holds `{own}`"
        remedy = f"write `name: {name}`, or rename the file"
        raise BrokenEntry(folder / f"{name}{_ENDING}", reason, ("name",), remedy)
    return found


def read_file(file: Path, shape: type[ShapeT], completed: Completion | None = None) -> ShapeT:
    """Read a file of the catalogue as a shape. Raises BrokenEntry."""
    from pydantic import ValidationError

    data = read_yaml(file)
    try:
        return shape.model_validate(completed(data, file) if completed else data)
    except ValidationError as fault:
        raise BrokenEntry(file, str(fault), shape=shape, completed=completed) from fault


def read_yaml(file: Path) -> Any:
    """The data of a file of the catalogue. Raises BrokenEntry."""
    return _load(file, _content(file))


def heads(folder: Path, keys: tuple[str, ...], word: str = "") -> dict[str, Mapping[str, Any]]:
    """The values of some top-level keys of each entry, by the entry's name.

    With a `word` in lower case, only entries whose file contains it, in any case.
    """
    wanted, sought = _lines_of(keys), word.encode(errors="replace")
    contents, lowered = _contents(folder), _lowered(folder)
    return {
        name: _load(folder / f"{name}{_ENDING}", b"".join(wanted.findall(content))) or {}
        for name, content in contents.items()
        if sought in lowered[name]
    }


def listed(head: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """The words under a key of a head; a value that is no list is reported on reading the entry."""
    found = head.get(key)
    return tuple(map(str, found)) if isinstance(found, list | dict) else ()


@cached(16)
def _contents(folder: Path) -> Mapping[str, bytes]:
    return {name: _content(folder / f"{name}{_ENDING}") for name in names_in(folder)}


@cached(16)
def _lowered(folder: Path) -> Mapping[str, bytes]:
    return {name: content.lower() for name, content in _contents(folder).items()}


@cached(16)
def _lines_of(keys: tuple[str, ...]) -> re.Pattern[bytes]:
    """Matches the line of a top-level key and the lines after it, up to the next key."""
    lines = rf"^(?:{'|'.join(keys)}):.*\n(?:(?![\w\"']).*\n)*"
    return re.compile(lines.encode(), re.MULTILINE)


def _load(file: Path, content: bytes) -> Any:
    """The data of a YAML file. Raises BrokenEntry."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(content, Loader=loader)  # noqa: S506  a safe loader, in C if it is there
    except yaml.YAMLError as fault:
        raise BrokenEntry(file, str(fault)) from fault


def _content(file: Path) -> bytes:
    return file.read_bytes()
