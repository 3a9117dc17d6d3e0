"""What a target must say: one two-way table between a consumer's keys and our slots.

A row (`Entry`) ties some keys of one file to some slots, in both directions: `write` gives the keys'
values for a plan, `read` the slots' values for the keys found. Emitting, reading, translating and
checking for agreement all come from the rows; a target that needs code has it in the two functions
of a row, not in a second description.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.ir.ledger import Definition, Rank
from tunec.compiler.ir.plan import Plan
from tunec.schemas.source import Span

Json = Any
"""What a JSON or YAML document holds: dict, list, str, int, float, bool, None."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One row: keys of one file <-> slots.

    `write` returns only the keys to be written (a key it leaves out is absent in the file);
    `read` is given the keys that were found and returns only the slots they settle. For every
    plan, `read(write(plan))` gives the plan's values of `slots`.
    """

    keys: tuple[str, ...]
    """Dotted paths in the file, as `zero_optimization.stage`."""
    slots: tuple[str, ...]
    write: Callable[[Plan], Mapping[str, Json]]
    read: Callable[[Mapping[str, Json]], Mapping[str, Any]]
    source: str
    """Repository, version and symbol where the consumer defines the keys."""
    since: str | None = None
    """First consumer version with these keys."""
    until: str | None = None
    """First consumer version without them."""
    absent: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """(first version, slot values that the consumer then takes if the keys are absent)."""

    def holds_at(self, version: Version) -> bool:
        """Whether the consumer knows these keys in that version."""
        after = self.since is None or version >= Version(self.since)
        return after and (self.until is None or version < Version(self.until))

    def defaults_at(self, version: Version) -> Mapping[str, Any]:
        """Slot values of an absent key in that version; empty if the consumer has none."""
        found: Mapping[str, Any] = {}
        for since, values in self.absent:
            if version >= Version(since):
                found = values
        return found


@dataclass(frozen=True, slots=True)
class Cannot:
    """Why a target has no key for a slot.

    `loses` says what a decided value means: False, another file or program of the run says it (the
    trainer builds the adapter, DeepSpeed never sees it); True, it would be lost, which is an error
    unless the value is one of `harmless`.
    """

    reason: str
    loses: bool = False
    harmless: tuple[Any, ...] = ()


Format = Literal["json", "yaml", "env", "shell", "text"]


@dataclass(frozen=True, slots=True)
class File:
    """One file that a target writes, and how it is recognised when read."""

    name: str
    format: Format
    entries: tuple[Entry, ...]
    recognise: Callable[[Json], bool]
    """Whether a parsed document is this file, by its content."""
    schema: Callable[[Version], str] | None = None
    """Name of the consumer's JSON Schema under `schemas/json/` for a version."""
    when: Callable[[Plan], bool] = field(default=lambda _: True)
    """Whether a plan needs this file at all."""
    render: Callable[[Mapping[str, Json], Plan], str] | None = None
    """Text of the file, where its format alone does not say it."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """One emitted file: a name relative to the output directory, and its text."""

    name: str
    format: Format
    text: str
    values: Mapping[str, Json]
    """What the text says, as data."""


@dataclass(frozen=True, slots=True)
class Found:
    """One key of a document that was read: its value and where it stands."""

    value: Json
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """One consumer, described once."""

    name: str
    package: str
    """The distribution whose version selects the dialect."""
    supported: SpecifierSet
    latest: str
    """The version taken when neither spec, cluster nor command line names one."""
    files: tuple[File, ...]
    cannot: Mapping[str, Cannot]
    requires: Mapping[str, Any] = field(default_factory=dict)
    """Slot values without which this target makes no sense (`parallel.engine: deepspeed`)."""
    check: Callable[[Plan, Version], Iterable[Diagnostic]] = field(default=lambda _p, _v: ())
    """What the consumer refuses or silently changes though every key is well formed."""

    def entries(self, version: Version) -> Iterator[Entry]:
        """The rows of every file that hold at a version."""
        for file in self.files:
            yield from (entry for entry in file.entries if entry.holds_at(version))

    def sayable(self, version: Version) -> frozenset[str]:
        """The slots that some row can say at a version."""
        return frozenset(slot for entry in self.entries(version) for slot in entry.slots)


def write_values(entries: Iterable[Entry], plan: Plan, version: Version) -> dict[str, Json]:
    """The document that the rows give for a plan: dotted keys become nested mappings."""
    document: dict[str, Json] = {}
    for entry in entries:
        if entry.holds_at(version):
            for key, value in entry.write(plan).items():
                _place(document, key, value)
    return document


def _place(document: dict[str, Json], key: str, value: Json) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        document = document.setdefault(parent, {})
    document[last] = value


def look_up(document: Json, key: str) -> tuple[bool, Json]:
    """Find a dotted key in nested mappings; return whether it is there, and its value."""
    for part in key.split("."):
        if not isinstance(document, Mapping) or part not in document:
            return False, None
        document = document[part]
    return True, document


def read_values(
    entries: Iterable[Entry], found: Mapping[str, Found], author: str, version: Version
) -> Iterator[Definition]:
    """The definitions that a document's keys make, by dotted key; absent keys give defaults."""
    for entry in entries:
        if not entry.holds_at(version):
            continue
        present = {key: found[key] for key in entry.keys if key in found}
        if present:
            yield from _observed(entry, present, author)
        else:
            yield from _assumed(entry, author, version)


def _observed(entry: Entry, present: Mapping[str, Found], author: str) -> Iterator[Definition]:
    span = next(iter(present.values())).span
    keys = ", ".join(present)
    for slot, value in entry.read({key: each.value for key, each in present.items()}).items():
        yield Definition(slot, value, Rank.OBSERVED, author, f"{keys} says so", span=span)


def _assumed(entry: Entry, author: str, version: Version) -> Iterator[Definition]:
    for slot, value in entry.defaults_at(version).items():
        reason = f"{entry.keys[0]} is absent: what {author} {version} then does"
        yield Definition(slot, value, Rank.CONSUMER, author, reason)


# ── the usual rows ───────────────────────────────────────────────────────────────────────────────


def same(
    key: str,
    slot: str,
    source: str,
    *,
    since: str | None = None,
    until: str | None = None,
    absent: tuple[tuple[str, Any], ...] = (),
) -> Entry:
    """A key that holds a slot's value as it is; None is left out, tuples become lists."""

    def write(plan: Plan) -> Mapping[str, Json]:
        value = plan[slot]
        if value is None:
            return {}
        return {key: list(value) if isinstance(value, tuple) else value}

    def read(found: Mapping[str, Json]) -> Mapping[str, Any]:
        value = found[key]
        return {slot: tuple(value) if isinstance(value, list) else value}

    defaults = tuple((version, {slot: value}) for version, value in absent)
    return Entry((key,), (slot,), write, read, source, since, until, defaults)


def named(
    key: str,
    slot: str,
    words: Mapping[Any, Json],
    source: str,
    *,
    since: str | None = None,
    until: str | None = None,
    absent: tuple[tuple[str, Any], ...] = (),
) -> Entry:
    """A key that says a slot's value in the consumer's own word, one to one."""
    back = {word: value for value, word in words.items()}

    def write(plan: Plan) -> Mapping[str, Json]:
        value = plan[slot]
        return {key: words[value]} if value in words else {}

    def read(found: Mapping[str, Json]) -> Mapping[str, Any]:
        word = found[key]
        return {slot: back[word]} if word in back else {}

    defaults = tuple((version, {slot: value}) for version, value in absent)
    return Entry((key,), (slot,), write, read, source, since, until, defaults)


def constant(
    key: str, value: Json, source: str, *, since: str | None = None, until: str | None = None
) -> Entry:
    """A key that is always written so, whatever the plan: it says no slot."""
    return Entry((key,), (), lambda _: {key: value}, lambda _: {}, source, since, until)


def derived(
    key: str,
    write: Callable[[Plan], Json | None],
    source: str,
    *,
    since: str | None = None,
    until: str | None = None,
) -> Entry:
    """A key that follows from slots which other rows say; None leaves it out."""

    def keys(plan: Plan) -> Mapping[str, Json]:
        value = write(plan)
        return {} if value is None else {key: value}

    return Entry((key,), (), keys, lambda _: {}, source, since, until)
