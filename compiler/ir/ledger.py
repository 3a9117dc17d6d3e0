"""The ledger: every definition of every slot, with who said it, why, and what it beat."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal, Self

from tunec.schemas.source import Span


class Rank(IntEnum):
    """Who may overrule whom; the highest rank wins."""

    CONSUMER = 0
    """What the consumer, in that version, does when the key is absent."""
    CATALOGUE = 1
    """A fact about the model, the device, the cluster."""
    DERIVED = 2
    """A pass decided it."""
    OBSERVED = 3
    """A config file that was read says it."""
    PIN = 4
    """The spec pins it, or the command line does."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Something a value rests on: a line of the spec, another slot, a fact with its source."""

    kind: Literal["spec", "slot", "device", "cluster", "model", "consumer", "target"]
    path: str
    """Dotted path in the spec, slot path, or field of the catalogue entry."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Alternative:
    """A value that was considered and not taken."""

    value: Any
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What a pass says about one slot."""

    value: Any
    reason: str
    rests: tuple[Origin, ...] = ()
    beat: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class Definition:
    """One statement about one slot, kept whether it won or not."""

    slot: str
    value: Any
    rank: Rank
    author: str
    """The pass, file or consumer that said it."""
    reason: str
    rests: tuple[Origin, ...] = ()
    beat: tuple[Alternative, ...] = ()
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Ledger:
    """Definitions by slot, in the order in which they were made. Adding gives a new ledger."""

    entries: Mapping[str, tuple[Definition, ...]] = field(default_factory=dict)

    def add(self, definitions: tuple[Definition, ...]) -> Self:
        """Return a ledger that holds these definitions too."""
        entries = dict(self.entries)
        for each in definitions:
            entries[each.slot] = (*entries.get(each.slot, ()), each)
        return type(self)(entries)

    def of(self, slot: str) -> tuple[Definition, ...]:
        """Every definition of a slot, earliest first."""
        return self.entries.get(slot, ())

    def winner(self, slot: str) -> Definition | None:
        """The definition that holds: highest rank, the earliest among equals."""
        return max(self.of(slot), key=lambda each: each.rank, default=None)

    def winners(self) -> Iterator[Definition]:
        """The holding definition of each slot that has one."""
        for slot in self.entries:
            winner = self.winner(slot)
            if winner is not None:
                yield winner

    def contradictions(self) -> Iterator[tuple[Definition, Definition]]:
        """Pairs of equal, highest rank that give one slot different values."""
        for slot in self.entries:
            winner = self.winner(slot)
            for other in self.of(slot):
                if winner and other.rank == winner.rank and other.value != winner.value:
                    yield winner, other
