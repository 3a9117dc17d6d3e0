"""The files of one target as far as they are known: row by row, with nothing invented.

An unset slot has the default of the target's program. If the program has no default for it, the key
is left out.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.ir.plan import SlotNotSet
from tunec.compiler.read import WRONG_SHAPE, found_plain, settle
from tunec.compiler.target import Dialect, Entry, File, Json, Target
from tunec.compiler.translate.carried_keys import CarriedKey, kept_in
from tunec.compiler.translate.partial import Partial
from tunec.compiler.translate.sources import Sources
from tunec.compiler.translate.statements import matters
from tunec.schemas.frozen import replace


class Row(Struct, frozen=True):
    """The result of one row of a file."""

    entry: Entry
    written: Mapping[str, Json]
    lost: tuple[str, ...] = ()
    """Known slots that reading the written keys does not return."""
    needs: str | None = None
    """An unset slot on which the written value of the row depends."""


class Draft(Struct, frozen=True):
    """The result of one file."""

    file: File
    values: dict[str, Json]
    rows: tuple[Row, ...]
    kept: tuple[CarriedKey, ...] = ()
    """Keys without a slot."""

    @property
    def said(self) -> frozenset[str]:
        """The slots that its rows express."""
        by_rows = (slot for row in self.rows if not row.needs for slot in row.entry.slots)
        return frozenset((*by_rows, *(slot for each in self.kept for slot in each.slots)))

    @property
    def lost(self) -> frozenset[str]:
        """The slots whose values it cannot express."""
        return frozenset(slot for row in self.rows for slot in row.lost)


def with_defaults(target: Target, known: Partial, dialect: Dialect) -> Partial:
    """The known slots, with the defaults of the target's program in such a run."""
    waiting = [
        (entry, entry.defaults_at(dialect[entry.package])) for entry in target.entries(dialect)
    ]
    while True:
        ready = [(entry, values) for entry, values in waiting if matters(entry, known, values)]
        new = {
            slot: value
            for _, values in reversed(ready)
            for slot, value in values.items()
            if slot not in known.values and slot not in known.possible
        }
        if not new:
            return known
        known = Partial({**known.values, **new}, known.possible)


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────


def drafts_of(
    target: Target, known: Partial, filled: Partial, sources: Sources, dialect: Dialect
) -> list[Draft]:
    """The files that express something that was read, with the keys that they keep."""
    every = (_draft(file, known, filled, dialect) for file in target.files)
    drafts = _kept([each for each in every if each is not None], known)
    made = [_with_kept(each, target, known, sources, dialect) for each in drafts]
    texts = {
        name: text for draft in made for each in draft.kept for name, text in each.texts.items()
    }
    return [*made, *(_text(name, text) for name, text in texts.items())]


def _text(name: str, text: str) -> Draft:
    """A file whose text is carried with the keys that name it."""
    said: dict[str, Json] = {}
    file = File(name, "text", (), lambda _: False, render=lambda _values, _header: text)
    return Draft(file, said, ())


def _with_kept(
    draft: Draft, target: Target, known: Partial, sources: Sources, dialect: Dialect
) -> Draft:
    there = found_plain(draft.values)
    kept = tuple(kept_in(target, draft.file, there, sources, dialect))
    told = frozenset(slot for each in kept for slot in each.slots)
    beside = {key: value for each in kept for key, value in each.keys.items()}
    rows = tuple(
        _beside(row, beside, known) for row in draft.rows if told.isdisjoint(row.entry.slots)
    )
    values: dict[str, Json] = {}
    for keys in (*(row.written for row in rows), *(each.keys for each in kept)):
        _put_all(values, keys)
    is_open = frozenset(key for each in kept for key in each.keys if each.read.fate == "filled")
    file = replace(draft.file, filled=(draft.file.filled or frozenset()) | is_open)
    return Draft(file if is_open else draft.file, values, rows, kept)


def undecided(target: Target, filled: Partial) -> Mapping[str, tuple[File, ...]]:
    """Files whose existence is undecided, by the slot that decides it."""
    found: dict[str, tuple[File, ...]] = {}
    for file in target.files:
        try:
            filled.ask(file.when)
        except SlotNotSet as unsaid:
            if not file.is_optional:
                found[unsaid.slot] = (*found.get(unsaid.slot, ()), file)
        except WRONG_SHAPE:
            continue
    return found


def _draft(file: File, known: Partial, filled: Partial, dialect: Dialect) -> Draft | None:
    """A file for the known slots; None if such a run does not have it."""
    try:
        if not filled.ask(file.when):
            return None
    except (SlotNotSet, *WRONG_SHAPE):
        return None
    entries = (entry for entry in file.entries if entry.holds_in(dialect))
    rows = tuple(filter(None, (_row(file, entry, known, filled, dialect) for entry in entries)))
    values: dict[str, Json] = {}
    for row in rows:
        _put_all(values, row.written)
    return Draft(file, values, rows)


def _row(file: File, entry: Entry, known: Partial, filled: Partial, dialect: Dialect) -> Row | None:
    """The result of a row; None if it does not apply."""
    told = [slot for slot in entry.slots if slot in known.values]
    try:
        if not filled.ask(entry.when):
            return None
        written = filled.ask(entry.write) if told or not entry.slots else {}
    except SlotNotSet as unsaid:
        return Row(entry, {}, needs=unsaid.slot)
    except WRONG_SHAPE:
        return Row(entry, {}, lost=tuple(told))
    if entry.slots and not told:
        return Row(entry, {}, needs=entry.slots[0])
    back = settle(entry, written) if written else entry.defaults_at(dialect[entry.package])
    back = {**_in_words(file, written), **back}
    lost = (slot for slot in told if slot not in back or not _is_same(slot, back, known.values))
    return Row(entry, written, tuple(lost))


def _beside(row: Row, kept: Mapping[str, Json], known: Partial) -> Row:
    """A row as it is read beside kept keys, such as a share of the data to evaluate on."""
    more = {key: value for key, value in kept.items() if key in row.entry.keys}
    if not (row.lost and row.written and more):
        return row
    back = settle(row.entry, {**row.written, **more})
    held = {slot for slot in row.lost if slot in back and _is_same(slot, back, known.values)}
    return replace(row, lost=tuple(slot for slot in row.lost if slot not in held))


_WITHOUT_ORDER: Final = frozenset({"runtime.report_to"})
"""Slots of names whose order means nothing."""


def _is_same(slot: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    if slot in _WITHOUT_ORDER:
        return sorted(one[slot]) == sorted(other[slot])
    return bool(one[slot] == other[slot])


def _in_words(file: File, written: Mapping[str, Json]) -> Mapping[str, Json]:
    """The slots that the file's phrases express by a row's keys: `all` linear layers."""
    found: dict[str, Json] = {}
    for phrase in file.phrases:
        if not written.keys().isdisjoint(phrase.keys):
            with suppress(*WRONG_SHAPE):
                found |= phrase.say(written)
    return found


def _kept(drafts: list[Draft], known: Partial) -> list[Draft]:
    """The files that have something to express, and can."""
    telling = [draft for draft in drafts if _tells(draft, known)]
    able = [draft for draft in telling if not (draft.file.is_optional and _is_open(draft))]
    names = {draft.file.name for draft in able}
    return [draft for draft in able if draft.file.part_of in ("", *names)]


def _tells(draft: Draft, known: Partial) -> bool:
    return any(
        row.written and not known.values.keys().isdisjoint(row.entry.slots) for row in draft.rows
    )


def _is_open(draft: Draft) -> bool:
    return bool(draft.lost) or any(row.needs for row in draft.rows if row.entry.slots)


def _put_all(document: dict[str, Json], keys: Mapping[str, Json]) -> None:
    """Put dotted keys into a document; a mapping replaces a plain value."""
    for key, value in keys.items():
        *parents, last = key.split(".")
        inner = document
        for parent in parents:
            if not isinstance(inner.get(parent), dict):
                inner[parent] = {}
            inner = inner[parent]
        inner[last] = value
