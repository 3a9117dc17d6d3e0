"""Which rules have to be asked, where most have found nothing in files and places much like these.

Files of a kind follow each other that differ in a few keys, on clusters that differ in a few of the
facts at which rules look. A rule that found nothing and read none of what differs would find
nothing again: it is not even asked whether it remembers.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.noted import EVERY_KEY, EVERYTHING, FAULTS, SLOT, Noted, Read
from tunec.compiler.lints.replies import Replies
from tunec.compiler.lints.surrounded import MODEL


@dataclass(frozen=True, slots=True)
class Grounds:
    """What was read before something was found, or nothing."""

    said: tuple[Read, ...]
    """Of files."""
    around: tuple[Read, ...]
    """Of what is beside them: hardware, processes, the model."""

    @classmethod
    def of(cls, reads: Iterable[Read]) -> Self:
        """What was read, sorted out."""
        found: tuple[list[Read], list[Read]] = ([], [])
        for read in reads:
            found[read == MODEL or read[0] == "at"].append(read)
        return cls(tuple(found[0]), tuple(found[1]))


_NONE = Grounds((), ())


@dataclass(slots=True)
class Standing:
    """The rules for a kind of files by their places, and on what each that found nothing rests.

    All of it speaks of the run that was judged last.
    """

    due: set[int]
    """The rules to be asked in any case: those that found something."""
    _grounds: dict[int, Grounds] = field(default_factory=dict)
    _looking: set[int] = field(default_factory=set)
    """The rules that look beside the files."""
    _resting: dict[Read, set[int]] = field(default_factory=dict)
    """The rules by what they rest on."""
    _replies: dict[Read, Any] = field(default_factory=dict)
    """The last replies to what they read beside the files."""
    _documents: Sequence[Document] = ()
    _together: frozenset[tuple[Any, ...]] = frozenset()

    def asked(self, replies: Replies) -> list[int]:
        """The places of the rules that have to be asked of a run, which is the last one now."""
        found = set(self.due)
        for read in self._different(replies):
            found |= self._resting.get(read, frozenset())
        return sorted(found)

    def settle(self, place: int, grounds: Grounds, replies: Replies) -> None:
        """Take down what a rule rests on that finds nothing in the last run."""
        self.due.discard(place)
        before = self._grounds.get(place, _NONE)
        if before is grounds:
            return
        self._rest(place, before.said, grounds.said)
        self._rest(place, before.around, grounds.around)
        self._grounds[place] = grounds
        for read in grounds.said:
            if read[0] == SLOT or not isinstance(read[1], str):
                replies[read]  # what is compared from now on
        if grounds.around:
            self._looking.add(place)
            for read in grounds.around:
                self._replies[read] = replies[read]

    def unsettle(self, place: int) -> None:
        """Have a rule asked in any case."""
        self.due.add(place)
        before = self._grounds.pop(place, _NONE)
        self._rest(place, (*before.said, *before.around), ())

    def _rest(self, place: int, before: Sequence[Read], now: Sequence[Read]) -> None:
        if before == now:
            return
        for read in set(before).difference(now):
            resting = self._resting.get(read)
            if resting is None:
                continue  # of files that come again nobody has to know who read what
            resting.discard(place)
            if not resting:
                del self._resting[read]
                self._replies.pop(read, None)
        for read in now:
            self._resting.setdefault(read, set()).add(place)

    def here(self) -> "Revisited":
        """The same for the last files by themselves, wherever they are met again."""
        resting = {read: set(self._resting[read]) for read in self._replies}
        return Revisited(set(self.due), resting, dict(self._replies))

    # ── what differs ─────────────────────────────────────────────────────────────────────────────

    def _different(self, replies: Replies) -> Iterator[Read]:
        """What a run says in another way than the last did."""
        documents = replies.said.run.documents
        if documents is not self._documents:
            cells = set(_different_cells(self._documents, documents))
            yield from cells
            yield from self._different_slots(cells, replies)
            self._documents = documents
        yield from _different_replies(self._replies, replies)

    def _different_slots(self, cells: set[Read], replies: Replies) -> Iterator[Read]:
        """The slots of which a differing cell speaks, or what cells say together."""
        together = frozenset(replies.said.together())
        slots = {each[0] for each in self._together ^ together}
        for cell in cells & replies.said.slots.keys():
            slots |= replies.said.slots[cell]
        yield from ((SLOT, slot) for slot in slots)
        self._together = together


@dataclass(slots=True)
class Revisited:
    """The same for files that come again: only what is beside them can differ.

    A rule is taken to rest on all that it rested on in any surroundings of these files.
    """

    due: set[int]
    _resting: dict[Read, set[int]]
    _replies: dict[Read, Any]
    _settled: dict[tuple[int, int], Grounds] = field(default_factory=dict)
    """What rules rested on, by the rule and the identity of that."""

    def asked(self, replies: Replies) -> list[int]:
        """As `Standing.asked`."""
        found = set(self.due)
        for read in _different_replies(self._replies, replies):
            found |= self._resting[read]
        return sorted(found)

    def settle(self, place: int, grounds: Grounds, replies: Replies) -> None:
        """As `Standing.settle`."""
        self.due.discard(place)
        if (place, id(grounds)) in self._settled:
            return
        self._settled[place, id(grounds)] = grounds
        for read in grounds.around:
            self._resting.setdefault(read, set()).add(place)
            self._replies[read] = replies[read]

    def unsettle(self, place: int) -> None:
        """As `Standing.unsettle`."""
        self.due.add(place)


def _different_replies(before: dict[Read, Any], replies: Replies) -> Iterator[Read]:
    """What is replied in another way than before, which is replaced."""
    for read, reply in before.items():
        now = replies[read]
        if now != reply:
            before[read] = now
            yield read


def _different_cells(before: Sequence[Document], after: Sequence[Document]) -> Iterator[Read]:
    """The cells in which documents of the same kinds differ."""
    for at, (old, new) in enumerate(zip(before, after, strict=False)):
        if old is new or not isinstance(old, Noted) or not isinstance(new, Noted):
            continue  # what is not noted is the same in all files of a kind
        keys = {key for key, _ in old.written.items() ^ new.written.items()}
        yield from ((at, key) for key in keys)
        if keys:
            yield from ((at, EVERYTHING), (at, FAULTS))
        if old.told(EVERY_KEY) != new.told(EVERY_KEY):
            yield at, EVERY_KEY
        yield from ((at, test) for test in old.tests if old.told(test) != new.told(test))
