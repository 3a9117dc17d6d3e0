"""Documents that note which of their keys are read: what a rule's finding rests on.

Two files of the same kind that differ in a few keys are the same to all rules that read others.
"""

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place

Cell = tuple[int | str, str]
"""Something that is read: the number of a document in its run with a key, or a slot."""

EVERY_KEY: Final = "*keys"
EVERYTHING: Final = "*"
SLOT: Final = "slot"


@dataclass(slots=True)
class Notes:
    """What was read since somebody emptied it."""

    cells: set[Cell] = field(default_factory=set)


class Noted(Document):
    """A document of JSON or YAML, whose reading is noted."""

    _notes: Notes
    _at: int

    def __init__(self, document: Document, notes: Notes, at: int) -> None:
        self.__dict__.update(document.__dict__)
        self.__dict__.update(_notes=notes, _at=at)
        self.__dict__.pop("found", None)

    @property
    def text(self) -> str:
        """As `Document.text`; it says everything."""
        self._notes.cells.add((self._at, EVERYTHING))
        text: str = self.__dict__["text"]
        return text

    @cached_property
    def found(self) -> "_Keys":
        """As `Document.found`."""
        return _Keys(dict(self._walk(self.root, "")), self._notes, self._at)

    @cached_property
    def written(self) -> dict[str, str]:
        """Every key with its value in words, to be compared with another document's."""
        return {path: repr(place.value) for path, place in self.found.unnoted.items()}


class _Keys(Mapping[str, Place]):
    """Keys that note which are looked up."""

    def __init__(self, found: dict[str, Place], notes: Notes, at: int) -> None:
        self.unnoted = found
        self._notes, self._at = notes, at

    def _note(self, key: str) -> None:
        self._notes.cells.add((self._at, key))

    def __getitem__(self, key: str) -> Place:
        self._note(key)
        return self.unnoted[key]

    def get(self, key: str, otherwise: Any = None) -> Any:
        """As any mapping's."""
        self._note(key)
        return self.unnoted.get(key, otherwise)

    def __contains__(self, key: object) -> bool:
        self._note(str(key))
        return key in self.unnoted

    def __iter__(self) -> Iterator[str]:
        self._note(EVERY_KEY)
        return iter(self.unnoted)

    def __len__(self) -> int:
        self._note(EVERY_KEY)
        return len(self.unnoted)

    def values(self) -> ValuesView[Place]:
        """As any mapping's; all are taken to be read."""
        self._note(EVERYTHING)
        return self.unnoted.values()

    def items(self) -> ItemsView[str, Place]:
        """As any mapping's; all are taken to be read."""
        self._note(EVERYTHING)
        return self.unnoted.items()
