"""changes: the effect of a change of existing files on the run that they configure."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.wording import joined
from tunec.compiler.driver import Planned
from tunec.compiler.ir.ledger import Ledger, Rank
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.review.diff.compare import IgnoredParts, SpecChange, change_of
from tunec.compiler.review.diff.effects import Effect, SlotChange, fate_of
from tunec.compiler.review.diff.intent import NOT_GIVEN, FieldChange
from tunec.compiler.review.diff.meanings import meaning_of
from tunec.compiler.review.outcome import Outcome, Pair, outcome_of
from tunec.compiler.translate.passthrough import DroppedKey
from tunec.compiler.translate.sources import Sources
from tunec.compiler.translate.spec_notes import lacking
from tunec.compiler.translate.to_spec import Asking, decided, sources_of_files
from tunec.schemas.frozen import replace

_NONE_FITS: Final = ("E0701", "E0702")
_BOUNDS: Final = ("devices.budget", "devices.reserve", "devices.host_budget")
_LONGEST: Final = 60
Key = tuple[str, str]
"""A key of a file: the file's path from the root of its side, and the key's dotted path."""


class Files(Struct, frozen=True):
    """One side: the named files, by the names that both sides share."""

    root: Path
    paths: Mapping[str, Path]

    def called(self, name: str) -> str:
        """The shared name of a file: its given name, or its path from the root."""
        full = Path(name).resolve()
        named = (each for each, path in self.paths.items() if path.resolve() == full)
        return next(named, Path(os.path.relpath(full, self.root.resolve())).as_posix())


class FilesOfRun(Struct, frozen=True):
    """One side, read and planned."""

    files: Files
    sources: Sources
    planned: Planned | None = None
    """Its plan, or that nothing fits; None: its memory cannot be computed."""
    why: str = ""
    """The reason if there is no plan."""
    lost: tuple[Place, ...] = ()
    """Keys with slots whose values the account cannot follow."""

    @property
    def keys(self) -> Mapping[Key, Place]:
        """Every leaf key, by its file and path."""
        found: dict[Key, Place] = {}
        for document in self.sources.run.documents:
            if not document.is_view and document.kind != "checkpoint":
                name = self.called(document.name)
                found |= {(name, path): place for path, place in _leaves(document)}
        return found

    @property
    def unjudged(self) -> frozenset[Key]:
        """Keys without a slot, or with an unknown effective value."""
        left = (each.place for each in self.sources.leftovers)
        labels = (label for each in self.faults for label in each.labels)
        disputed = ((each.span.file, each.path) for each in labels if each.span is not None)
        return frozenset((*(self.key(each) for each in (*left, *self.lost)), *disputed))

    def key(self, place: Place) -> Key:
        """The shared name of a place: its file and key."""
        return self.called(place.document.name), place.path

    def called(self, name: str) -> str:
        """The shared name of a file."""
        return self.files.called(name)

    @property
    def unread(self) -> tuple[str, ...]:
        """The named files of which nothing was read."""
        read = {self.called(each.name) for each in self.sources.run.documents}
        return tuple(each for each in self.files.paths if each not in read)

    @property
    def faults(self) -> tuple[Diagnostic, ...]:
        """The errors of the files, at the shared names of their places."""
        errors = (each for each in self.sources.diagnostics if each.severity == "error")
        return tuple(replace(each, labels=tuple(map(self._label, each.labels))) for each in errors)

    def _label(self, label: Label) -> Label:
        span = label.span
        named = None if span is None else replace(span, file=self.called(span.file))
        return replace(label, span=named)

    @property
    def texts(self) -> Mapping[str, str]:
        """The text of each file, by its shared name."""
        return {self.called(name): text for name, text in self.sources.texts.items()}


def _leaves(document: Document) -> Iterator[tuple[str, Place]]:
    return ((path, each) for path, each in document.found.items() if not each.node.fields)


def files_of_run(files: Files, asking: Asking) -> FilesOfRun:
    """Read the files of one side, and plan their run if possible."""
    sources = sources_of_files(tuple(files.paths.values()), asking)
    if not sources.run.documents:
        return FilesOfRun(files, sources, why="no file of a known program was read")
    found = decided(sources, asking)
    lost = tuple(each.place for each in found.keys if isinstance(each, DroppedKey))
    missing = lacking(found.base)
    if missing and not found.base.is_whole:
        return FilesOfRun(files, sources, why="; ".join(missing), lost=lost)
    planned = found.settled.planned
    fault = next((each for each in planned.diagnostics if _keeps_from_planning(each)), None)
    if fault is not None:
        return FilesOfRun(files, sources, why=fault.message, lost=lost)
    return FilesOfRun(files, sources, planned, lost=lost)


def _keeps_from_planning(found: Diagnostic) -> bool:
    return found.severity == "error" and found.id not in _NONE_FITS


def compare_files(
    name: str, sides: Iterable[tuple[FilesOfRun, FilesOfRun]], clusters: Sequence[str]
) -> SpecChange:
    """The differences between two sides: keys, then decisions, memory and time on each cluster."""
    every = tuple(sides)
    old, new = every[0]
    keys = tuple(_changed_keys(old, new))
    unknown = [key for key, _ in keys if key in old.unjudged | new.unjudged]
    beside = IgnoredParts(_why(every), tuple(path for _, path in unknown))
    effects = (
        _effect(before, after, Pair(name, cluster))
        for (before, after), cluster in zip(every, clusters, strict=True)
    )
    return change_of(name, (change for _, change in keys), effects, beside)


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────


def _changed_keys(old: FilesOfRun, new: FilesOfRun) -> Iterator[tuple[Key, FieldChange]]:
    before, after = old.keys, new.keys
    for key in (*after, *(each for each in before if each not in after)):
        one, other = before.get(key), after.get(key)
        if one is not None and other is not None and one.value == other.value:
            continue
        there = other or one
        span = None if there is None else replace(there.key_span, file=key[0])
        yield (key, FieldChange(key[1], _value(one), _value(other), _text(one), _text(other), span))


def _value(place: Place | None) -> Any:
    return None if place is None else place.value


def _text(place: Place | None) -> str:
    """A value as written in its file, shortened if it is long."""
    if place is None:
        return NOT_GIVEN
    span = place.node.span
    lines = place.document.text.splitlines()
    if span.line == span.end_line and span.line <= len(lines):
        text = lines[span.line - 1][span.column - 1 : span.end_column - 1]
    else:
        text = str(place.value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


# ── decisions ────────────────────────────────────────────────────────────────────────────────────


def _effect(old: FilesOfRun, new: FilesOfRun, pair: Pair) -> Effect:
    before, after = _outcome(old, pair), _outcome(new, pair)
    is_told = old.planned is not None and new.planned is not None
    fate = fate_of(before.fits, after.fits) if is_told else "not compared"
    return Effect(before, after, fate, tuple(_decisions(old, new)))


def _outcome(side: FilesOfRun, pair: Pair) -> Outcome:
    if side.planned is not None:
        return outcome_of(side.planned, pair)
    return Outcome(pair, None, side.sources.known.values, side.sources.ledger)


def _decisions(old: FilesOfRun, new: FilesOfRun) -> Iterator[SlotChange]:
    """The slots that files set, or that have a known default, and that differ."""
    before, after = _every_slot(old), _every_slot(new)
    changed = [
        slot for slot in SLOTS if slot not in _BOUNDS and not _is_same(before[slot], after[slot])
    ]
    for slot in changed:
        rests = {each.path for each in _rests(new.sources.ledger, slot)}
        follows = not rests.isdisjoint(changed) or _comes_and_goes(slot, old, new)
        meaning = meaning_of(slot, before, after)
        yield SlotChange(
            slot, before[slot], after[slot], _reason(new, slot), meaning, follows=follows
        )


def _comes_and_goes(slot: str, old: FilesOfRun, new: FilesOfRun) -> bool:
    """Whether a slot occurs on one side only, with just its default."""
    both = (side.sources.ledger.winner(slot) for side in (old, new))
    there = [each for each in both if each is not None]
    return len(there) == 1 and there[0].rank == Rank.CONSUMER


def _every_slot(side: FilesOfRun) -> dict[str, Any]:
    """The value of each slot; None also if no file sets it, or it has no effect."""
    known, idle = side.sources.known.values, side.sources.idle
    return {slot: None if slot in idle else known.get(slot) for slot in SLOTS}


def _is_same(one: Any, other: Any) -> bool:
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _rests(ledger: Ledger, slot: str) -> Iterator[Any]:
    winner = ledger.winner(slot)
    return (each for each in (winner.rests if winner else ()) if each.kind == "slot")


def _reason(side: FilesOfRun, slot: str) -> str:
    """The place that sets it; else what it follows from, or whose default it is."""
    winner = side.sources.ledger.winner(slot)
    if winner is None:
        return "no file says it any more"
    if winner.span is not None:
        return f"{side.called(winner.span.file)}:{winner.span.line}"
    return f"the default of {winner.author}" if winner.rank == Rank.CONSUMER else winner.reason


def _why(sides: Sequence[tuple[FilesOfRun, FilesOfRun]]) -> str:
    """The reason why memory was not computed, on the first side without it."""
    for old, new in sides:
        both = [each.why for each in (old, new) if each.why]
        if both:
            when = "" if len(both) == 2 else ("before the change, " if old.why else "now ")
            return when + joined(dict.fromkeys(both), "and")
    return ""
