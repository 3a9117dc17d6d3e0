"""Documents that note which of their keys are read: what a rule's finding rests on.

Two files of the same kind that differ in a few keys are the same to all rules that read others.
"""

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any, Final

from tunec.compiler.frontend.nodes import Node, place
from tunec.compiler.lints.document import Document, Test
from tunec.compiler.lints.place import Place
from tunec.compiler.target import Found

Cell = tuple[int | str, str | Test]
"""Something that is read: the number of a document in its run with a key or a test, or a slot."""
Read = tuple[Any, ...]
"""A cell, or a question to the surroundings (`tunec.compiler.lints.questions`)."""

EVERY_KEY: Final = "*keys"
EVERYTHING: Final = "*"
FAULTS: Final = "*faults"
SLOT: Final = "slot"


@dataclass(slots=True)
class Notes:
    """What was read since somebody emptied it, in the order of reading."""

    read: dict[Read, Any] = field(default_factory=dict)


class Noted(Document):
    """A document of JSON or YAML, whose reading is noted."""

    _notes: Notes
    _at: int

    def __init__(self, document: Document, notes: Notes, at: int) -> None:
        self.__dict__.update(document.__dict__)
        self.__dict__.update(_notes=notes, _at=at)
        for name in ("found", "flat"):
            self.__dict__.pop(name, None)

    @property
    def text(self) -> str:
        """As `Document.text`; it says everything."""
        self._notes.read[self._at, EVERYTHING] = None
        text: str = self.__dict__["text"]
        return text

    @cached_property
    def found(self) -> "_Keys":
        """As `Document.found`."""
        return _Keys(dict(self._walk(self.root, "")), self._notes, self._at)

    @cached_property
    def flat(self) -> dict[str, Found]:
        """As `Document.flat`, for tables: what rules get of it is noted by slot."""
        found = zip(self.found.unnoted.items(), self._values, strict=True)
        return {path: Found(value, place(each.node)) for (path, each), value in found}

    def where(self, test: Test) -> Mapping[str, Place]:
        """As `Document.where`."""
        self._notes.read[self._at, test] = None
        return {key: self.found[key] for key in self.told(test)}

    def told(self, key: str | Test) -> Any:
        """What a cell says, to be compared with another document's; None: nothing."""
        if not isinstance(key, str):
            if key not in self.tests:
                self.tests[key] = tuple(self._passing(key))
            return self.tests[key]
        if key == EVERYTHING:
            return self._digest
        return self._keys if key == EVERY_KEY else self.written.get(key)

    def _passing(self, test: Test) -> Iterator[str]:
        for (key, at), value in zip(self.found.unnoted.items(), self._values, strict=True):
            if test(at.path, value):
                yield key

    @cached_property
    def tests(self) -> dict[Test, tuple[str, ...]]:
        """The keys that passed each test that somebody asked for."""
        return {}

    @cached_property
    def written(self) -> dict[str, str]:
        """Every key with its value in words."""
        return dict(zip(self.found.unnoted, map(repr, self._values), strict=True))

    @cached_property
    def _values(self) -> tuple[Any, ...]:
        return tuple(place.value for place in self.found.unnoted.values())

    @cached_property
    def cells(self) -> dict[Read, str]:
        """The same by its cells."""
        return {(self._at, path): words for path, words in self.written.items()}

    @cached_property
    def _keys(self) -> str:
        return "\n".join(self.found.unnoted)

    @cached_property
    def _digest(self) -> str:
        return sha256(repr(self.written).encode()).hexdigest()


class _Keys(Mapping[str, Place]):
    """Keys that note which are looked up."""

    def __init__(self, found: dict[str, Place], notes: Notes, at: int) -> None:
        self.unnoted = found
        self._notes, self._at = notes, at

    def _note(self, key: str) -> None:
        self._notes.read[self._at, key] = None

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
        """As any mapping's; the value of each place is read when somebody looks."""
        self._note(EVERY_KEY)
        return self._later.values()

    def items(self) -> ItemsView[str, Place]:
        """As any mapping's; the value of each place is read when somebody looks."""
        self._note(EVERY_KEY)
        return self._later.items()

    @cached_property
    def _later(self) -> dict[str, Place]:
        return {
            key: _LaterPlace(place, self._notes, (self._at, key))
            for key, place in self.unnoted.items()
        }


class _LaterPlace(Place):
    """A place that notes when its value is read."""

    __slots__ = ("_cell", "_notes", "_place")
    _place: Place
    _notes: Notes
    _cell: Cell

    def __init__(self, place: Place, notes: Notes, cell: Cell) -> None:
        for name, value in (("_place", place), ("_notes", notes), ("_cell", cell)):
            object.__setattr__(self, name, value)

    @property
    def document(self) -> Document:
        """As `Place.document`."""
        return self._place.document

    @property
    def path(self) -> str:
        """As `Place.path`."""
        return self._place.path

    @property
    def node(self) -> Node:
        """As `Place.node`."""
        self._notes.read[self._cell] = None
        return self._place.node

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _LaterPlace):
            return self._place == other._place
        return self._place == other

    def __hash__(self) -> int:
        return hash(self._place)
