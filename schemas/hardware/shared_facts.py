"""What devices share: rows of `shared.yaml`, so that a device's file holds only its own numbers."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tunec.schemas.caches import cached
from tunec.schemas.entries import BrokenEntry, read_file
from tunec.schemas.shape import Shape

FILE: Final = Path(__file__).with_name("shared.yaml")
_KEY: Final = "shares"


class SharedFacts(Shape):
    """The file of rows; each holds fields of a device under the fields' own names."""

    rows: dict[str, dict[str, Any]]


def completed(data: Any, file: Path) -> Any:
    """A device's data with the rows that its `shares` names; its own values come before theirs.

    The sources of all are joined, and the rows' notes come first. Raises BrokenEntry.
    """
    if not isinstance(data, dict) or _KEY not in data:
        return data
    own = {key: value for key, value in data.items() if key != _KEY}
    parts = [*_rows(data[_KEY], file), own]
    whole = {key: value for part in parts for key, value in part.items()}
    sources = [part["sources"] for part in parts if isinstance(part.get("sources"), dict)]
    whole["sources"] = {path: text for part in sources for path, text in part.items()}
    notes = [part["notes"] for part in parts if isinstance(part.get("notes"), list)]
    return whole | {"notes": [note for part in notes for note in part]}


def _rows(named: Any, file: Path) -> Iterator[Mapping[str, Any]]:
    known = _known()
    for at, name in enumerate(named if isinstance(named, list) else (named,)):
        if name not in known:
            place = (_KEY, at) if isinstance(named, list) else (_KEY,)
            remedy = f"name one of {FILE.name}, or add it there: {', '.join(known)}"
            raise BrokenEntry(file, f"no row is called `{name}`", place, remedy)
        yield known[name]


@cached()
def _known() -> Mapping[str, Mapping[str, Any]]:
    return read_file(FILE, SharedFacts).rows
