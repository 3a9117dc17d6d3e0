"""The ledger: every definition of every slot, with its author, its reason, and what it beat."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from functools import cached_property
from typing import Any, Literal, Self

from msgspec import Struct, field

from tunec.schemas.source import Span


class Rank(IntEnum):
    """Who may overrule whom; the highest rank wins."""

    CONSUMER = 0
    """What the consumer does, in that version, if the key is absent."""
    CATALOGUE = 1
    """A fact about the model, the device, the cluster."""
    DERIVED = 2
    """A pass decided it."""
    OBSERVED = 3
    """A config file that was read sets it."""
    PIN = 4
    """The spec pins it, or the command line does."""


class Origin(Struct, frozen=True):
    """Something a value rests on: a line of the spec, another slot, a fact with its source."""

    kind: Literal["spec", "slot", "device", "cluster", "model", "consumer", "target"]
    path: str
    """Dotted path in the spec, slot path, or field of the catalogue entry."""
    note: str = ""


class Alternative(Struct, frozen=True):
    """A value that was considered and not taken."""

    value: Any
    reason: str


class Decision(Struct, frozen=True):
    """What a pass decides about one slot."""

    value: Any
    reason: str
    rests: tuple[Origin, ...] = ()
    beat: tuple[Alternative, ...] = ()


class Definition(Struct, frozen=True):
    """One statement about one slot, kept whether it won or not."""

    slot: str
    value: Any
    rank: Rank
    author: str
    """The pass, file or consumer that made the statement."""
    reason: str
    rests: tuple[Origin, ...] = ()
    beat: tuple[Alternative, ...] = ()
    span: Span | None = None


_Entries = Mapping[str, tuple[Definition, ...]]


def _joined(entries: _Entries, more: Iterable[Definition]) -> dict[str, tuple[Definition, ...]]:
    of_slot: dict[str, list[Definition]] = {}
    for each in more:
        of_slot.setdefault(each.slot, []).append(each)
    joined = {slot: (*entries.get(slot, ()), *own) for slot, own in of_slot.items()}
    return {**entries, **joined}


class _Later(Mapping[str, tuple[Definition, ...]]):
    """Entries joined with definitions that are computed once, when they are first read."""

    def __init__(self, below: _Entries, more: Callable[[], Iterable[Definition]]) -> None:
        self._below = below
        self._more = more

    @cached_property
    def _entries(self) -> dict[str, tuple[Definition, ...]]:
        return _joined(self._below, self._more())

    def __getitem__(self, slot: str) -> tuple[Definition, ...]:
        return self._entries[slot]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return repr(self._entries)

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (self._entries,)


class Ledger(Struct, frozen=True):
    """Definitions by slot, in the order in which they were made. Adding returns a new ledger."""

    entries: Mapping[str, tuple[Definition, ...]] = field(default_factory=dict)

    def add(self, definitions: tuple[Definition, ...]) -> Self:
        """Return a ledger that also holds these definitions."""
        return type(self)(_joined(self.entries, definitions))

    def later(self, definitions: Callable[[], Iterable[Definition]]) -> Self:
        """Return a ledger that also holds these definitions, which are computed when first read."""
        return type(self)(_Later(self.entries, definitions))

    def of(self, slot: str) -> tuple[Definition, ...]:
        """Every definition of a slot, earliest first."""
        return self.entries.get(slot, ())

    def winner(self, slot: str) -> Definition | None:
        """The definition that holds: the highest rank, and the earliest among equal ranks."""
        return max(self.of(slot), key=lambda each: each.rank, default=None)

    def winners(self) -> Iterator[Definition]:
        """The holding definition of each slot that has one."""
        for slot in self.entries:
            winner = self.winner(slot)
            if winner is not None:
                yield winner

    def causes(self, slot: str) -> Iterator[Definition]:
        """The holding definitions of a slot and of the slots that it rests on, nearest first."""
        waiting, seen = deque([slot]), {slot}
        while waiting:
            winner = self.winner(waiting.popleft())
            if winner is None:
                continue
            yield winner
            below = [each.path for each in winner.rests if each.kind == "slot"]
            waiting.extend(each for each in below if each not in seen)
            seen.update(below)

    def contradictions(self) -> Iterator[tuple[Definition, Definition]]:
        """Pairs of definitions of equal, highest rank that give one slot different values."""
        for slot in self.entries:
            winner = self.winner(slot)
            for other in self.of(slot):
                if winner and other.rank == winner.rank and other.value != winner.value:
                    yield winner, other
