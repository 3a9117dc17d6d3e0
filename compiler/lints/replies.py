"""What files and their surroundings say where a rule reads them, looked up when first asked."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from tunec.compiler.ir.ledger import Definition
from tunec.compiler.lints.environment import Environment
from tunec.compiler.lints.noted import FAULTS, SLOT, Noted, Read
from tunec.compiler.lints.questions import answer
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.schemas import Fault, Schema
from tunec.compiler.lints.sparing import Sparing
from tunec.compiler.lints.surrounded import MODEL, Surrounded

SOMETHING: Final = ("at", "environment")
WORLD: Final = ("at", "environment.world")
"""The questions to the surroundings whether there are any, and for the number of processes."""
_HARDWARE: Final = tuple(
    f"environment.{each}" for each in ("cluster", "devices", "weakest", "hosts", "has_")
)
"""What is asked of hardware alone."""
_NOT_THERE: Final = object()
"""The reply to a question about a part that some hardware has and this has not."""


@dataclass(slots=True)
class Said:
    """What files say, wherever they are used."""

    run: Sparing
    """The files, in the surroundings in which they were first met."""
    rows: dict[str, tuple[Read, ...]]
    """The cells of all rows that say a slot, for all files of the kind."""
    slots: dict[Read, set[str]]
    """The slots of all rows that say a cell, of those in `rows`."""
    known: dict[Read, Any] = field(init=False)
    """The replies that were looked up, with those of all cells that say something."""

    def __post_init__(self) -> None:
        """Look into what is noted."""
        self.known = {}
        for each in self.run.documents:
            if isinstance(each, Noted):
                self.known.update(each.cells)

    def cells(self, slot: str) -> tuple[Read, ...]:
        """The cells of all rows that say a slot, of whatever version."""
        if slot not in self.rows:
            self.rows[slot] = tuple(_rows(self.run, slot))
            for cell in self.rows[slot]:
                self.slots.setdefault(cell, set()).add(slot)
        return self.rows[slot]

    def together(self) -> Iterator[tuple[Any, ...]]:
        """What files say of slots only together, in words that begin with the slot."""
        return ((each.slot, *_words(each)) for each in self.run.said_together)


def _rows(run: Run, slot: str) -> Iterator[Read]:
    for at, document in enumerate(run.documents):
        for entry in document.file.entries if document.file else ():
            if slot in entry.slots:
                yield from ((at, key) for key in entry.keys)


def _words(each: Definition) -> tuple[Any, ...]:
    return each.rank, each.author, each.reason, repr(each.value), each.span is None


class Replies(dict[Read, Any]):
    """The replies of files in some surroundings to what was read so far."""

    surrounded: Surrounded | None = None
    """The run as rules are given it; None: none was."""

    def __init__(
        self, said: Said, environment: Environment, hardware: dict[Read, Any], model: int
    ) -> None:
        """`hardware`: what is known of the cluster and its devices; `model`: its number."""
        super().__init__(hardware)
        self[SOMETHING], self[WORLD], self[MODEL] = "something", repr(environment.world), model
        self.said, self._environment, self._hardware = said, environment, hardware

    @cached_property
    def run(self) -> Run:
        """The files in these surroundings."""
        first = self.said.run
        return first if first.environment is self._environment else first.moved(self._environment)

    def __missing__(self, read: Read) -> Any:
        known = self.said.known
        if read not in known:
            about, what = read
            reply = self._reply(read)
            if about != "at":
                known[read] = reply
            elif what.startswith(_HARDWARE):
                self._hardware[read] = reply
            self[read] = reply
            return reply
        found = self[read] = known[read]
        return found

    def _reply(self, read: Read) -> Any:
        about, what = read
        if about == "at":
            try:
                return answer(self.run, read)
            except (AttributeError, LookupError, TypeError):
                return _NOT_THERE
        return self._in_slot(what) if about == SLOT else _said(self.run, about, what)

    def _in_slot(self, slot: str) -> Any:
        """What the files say of a slot: by the keys of its rows, and together."""
        together = (each for each in self.said.together() if each[0] == slot)
        return (*map(self.__getitem__, self.said.cells(slot)), *together)


def _said(run: Run, at: int, what: str) -> Any:
    """What a file of a run says in a cell."""
    document = run.documents[at]
    if what == FAULTS:
        return tuple(map(_fault, run.faults(document)))
    return document.told(what) if isinstance(document, Noted) else None


def _fault(each: Fault) -> tuple[Any, ...]:
    said = each.place.path, repr(each.place.value), _number(each.schema)
    return each.what, each.path, each.is_refused, each.is_checked, *said


_SCHEMAS: Final[dict[int, tuple[Any, int]]] = {}


def _number(schema: Schema) -> int:
    """A number for a schema, which the schema, being kept, shares with no other."""
    return _SCHEMAS.setdefault(id(schema), (schema, len(_SCHEMAS)))[1]
