"""What a target must say: one two-way table between a consumer's keys and our slots.

A row (`Entry`) ties keys of one file to slots: `write` gives the keys' values for a plan, `read`
the slots' values for keys. Emitting, reading, translating and comparing all come from the rows.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from msgspec import Struct, field
from packaging.version import Version

from tunec.compiler.analyses.counting import Counting
from tunec.compiler.consumers.moved_keys import Carry, Moved
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.ir.ledger import Definition
from tunec.compiler.ir.plan import Draft, Plan
from tunec.compiler.ir.values import is_same
from tunec.compiler.releases import Package, Releases, parsed
from tunec.compiler.start_commands import Start
from tunec.schemas.data_paths import Media, Record
from tunec.schemas.source import Span
from tunec.schemas.spec import Spec

Json = Any
"""What a JSON or YAML document holds."""

Dialect = Mapping[str, Version]
"""Versions by distribution; the empty name stands for the target's own package."""

ALWAYS: Final = "0"
"""The `absent` version of a default that holds in every release."""


def in_every_plan(_: Plan) -> bool:
    """True: the condition of a row or a file that no plan can do without."""
    return True


def in_no_plan(_: Plan) -> bool:
    """False: the condition of a row or a file that is only read."""
    return False


def on_deepspeed(plan: Plan) -> bool:
    """Whether DeepSpeed runs the training step: the condition of its file and what names it."""
    return plan.parallel.engine == "deepspeed"


class Entry(Struct, frozen=True):
    """One row: keys of one file <-> slots.

    `write` returns only the keys to be written (a key it leaves out is absent in the file); `read`
    is given the keys that were found and returns only the slots they settle. For every plan in
    which the row matters, `read(write(plan))` gives the plan's values of `slots`; where nothing
    is written, `absent` does. Emission checks that for each row, so a value that the consumer
    has no word for is an error and never a loss.
    """

    keys: tuple[str, ...]
    """Dotted paths in the file, as `zero_optimization.stage`; none: what is done unasked."""
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
    when: Callable[[Plan], bool] = in_every_plan
    """In which plans the row matters; in others another row or file says the slots, if they do."""
    package: str = ""
    """The distribution that `since`, `until` and `absent` count; empty: the target's own."""
    yields: bool = False
    """Whether a key that a spec passes through may say something else."""
    beside: tuple[str, ...] = ()
    """Those of `keys` that tell how the others are read, and say something else by other rows."""

    def holds_at(self, version: Version) -> bool:
        """Whether the consumer knows these keys in that version."""
        is_there = self.since is None or version >= parsed(self.since)
        return is_there and (self.until is None or version < parsed(self.until))

    def holds_in(self, dialect: Dialect) -> bool:
        """Whether the consumer knows these keys in that dialect."""
        return self.holds_at(dialect[self.package])

    def defaults_at(self, version: Version) -> Mapping[str, Any]:
        """Slot values of an absent key in that version; empty if the consumer has none."""
        found = [values for since, values in self.absent if version >= parsed(since)]
        return found[-1] if found else {}


class Phrase(Struct, frozen=True):
    """Keys that say a field of a spec whose slots follow from the rest of a plan: "all linear"."""

    keys: tuple[str, ...]
    say: Callable[[Mapping[str, Json]], Mapping[str, Any]]
    """The words for the keys that were found, each by its slot or field of `train`."""
    source: str
    """Repository, version and symbol where the consumer defines the keys."""
    beside: tuple[str, ...] = ()
    """Keys that it looks at, and that say something else too."""


class Cannot(Struct, frozen=True):
    """Why a target has no key for a slot.

    `loses`: a decided value is lost, an error unless it is one of `harmless`; the loss of a slot of
    `by` causes this one, and is told alone. In plans of `elsewhere` another target's file says it.
    """

    reason: str
    loses: bool = False
    harmless: tuple[Any, ...] = ()
    by: tuple[str, ...] = ()
    elsewhere: Callable[[Plan], bool] = in_no_plan

    def refuses(self, value: Any) -> bool:
        """Whether a value that no row says would be lost."""
        return self.loses and value not in self.harmless


def refused(
    cannot: Mapping[str, Cannot], said: Container[str], values: Mapping[str, Any]
) -> dict[str, Cannot]:
    """The slots that no row says and whose values would be lost, without those lost by another."""
    lost = [s for s in cannot if s not in said and s in values and cannot[s].refuses(values[s])]
    return {slot: cannot[slot] for slot in lost if not {*lost} & {*cannot[slot].by}}


Format = Literal["json", "yaml", "env", "shell", "text"]


class File(Struct, frozen=True):
    """One file that a target writes, and how it is recognised when read."""

    name: str
    format: Format
    entries: tuple[Entry, ...]
    recognise: Callable[[Json], bool]
    """Whether a parsed document is this file, by its content."""
    schema: Callable[[Dialect], str | None] | None = None
    """Path below `schemas/json/` of the reader's JSON Schema for a dialect; None: there is none."""
    when: Callable[[Plan], bool] = in_every_plan
    """Whether a plan needs this file at all."""
    render: Callable[[Mapping[str, Json], Sequence[str]], str] | None = None
    """Text of the file from its values and header lines, where its format alone does not say it."""
    parse: Callable[[str], Json] | None = None
    """The document that a text of the file is, where its format alone does not say it."""
    check: Callable[[Plan, Dialect], Iterable[Diagnostic]] = field(default=lambda _p, _d: ())
    """What the reader of this file refuses or silently changes though every key is well formed."""
    filled: frozenset[str] | None = None
    """Keys whose `auto` another file fills; of others it is no value. None: a word like any."""
    holds: Callable[[Json], Mapping[str, str]] | None = None
    """The texts of other files that are within this one, by their paths."""
    block: tuple[str, Callable[[Dialect], str | None]] | None = None
    """Where no schema holds for the whole: a mapping in it, as of flags, and the schema of that."""
    phrases: tuple[Phrase, ...] = ()
    """What its keys say to a spec beside the rows."""
    foreign: Callable[[Mapping[str, Json]], Iterable[tuple[str, str]]] = field(default=lambda _: ())
    """Keys whose values its reader alone understands, though a slot holds them: each with why."""
    carries: tuple[Carry, ...] = ()
    """What the program that runs a dialect is told of keys that no row reads."""
    reads_powers: bool = False
    """Whether its program makes a number of `2e-5`, which YAML 1.1 has as text."""
    takes: tuple[Carry, ...] = ()
    """What it holds of TRL's arguments that no row reads; what it hands on is taken as it is."""
    leaves: tuple[Moved, ...] = ()
    """Keys that no slot stands for: what other programs do without each."""
    names: tuple[str, ...] = ()
    """Dotted keys that hold the name of another file of the run, or words among which it is one."""
    over: str = ""
    """Of flags beside a config: the file of the config, of which a flag replaces the same key."""
    alone: "File | None" = None
    """It, as it is where none of the files that it can name is there."""
    is_optional: bool = False
    """Whether others say the same, so that it is left out, with a note, where it cannot."""
    part_of: str = ""
    """The file that names this one, which is left out with it; empty: it stands for itself."""


class Artifact(Struct, frozen=True):
    """One emitted file: a name relative to the output directory, and its text."""

    name: str
    format: Format
    text: str
    values: Mapping[str, Json]
    """What the text says, as data."""


class Found(Struct, frozen=True):
    """One key of a document that was read: its value and where it stands."""

    value: Json
    span: Span | None = None


Documents = Mapping[str, Mapping[str, Found]]
"""The keys found in each document by dotted path, by the name of the target's file."""


class Target(Struct, frozen=True):
    """One consumer, described once."""

    name: str
    package: str
    """The distribution whose version selects the dialect."""
    supported: Releases
    latest: str
    """The version taken when neither spec, cluster nor command line names one."""
    files: tuple[File, ...]
    cannot: Mapping[str, Cannot]
    requires: Mapping[str, Any] = field(default_factory=dict)
    """Slot values without which this target makes no sense (`parallel.engine: deepspeed`)."""
    needs: Callable[[Spec, Draft], Mapping[str, Any]] | None = None
    """Slot values like `requires`, where they depend on the spec or on decided groups."""
    takes_fsdp: bool = False
    """Whether it runs FSDP or leaves the engine to others, so that the search may choose it."""
    starts_workers: Callable[[Spec], bool] = field(default=lambda _: False)
    """Whether the program of a spec is started once, and starts the other processes itself."""
    check: Callable[[Plan, Version], Iterable[Diagnostic]] = field(default=lambda _p, _v: ())
    """What the consumer refuses or silently changes though every key is well formed."""
    releases: tuple[str, ...] = ()
    """The newest release of each supported minor version, or each that changes keys, in order."""
    beside: Mapping[str, Package] = field(default_factory=dict)
    """Other distributions whose versions select keys of this target's files."""
    companions: Callable[[Version], Mapping[str, str]] = field(default=lambda _: {})
    """Versions of these that go with one of the own package, where nobody names them."""
    installs: Callable[[Version], Mapping[str, Releases]] = field(default=lambda _: {})
    """The releases of these that one of the own package requires, by its own metadata."""
    together: Callable[[Documents], Iterable[Definition]] = field(default=lambda _: ())
    """What documents say only together."""
    starts: tuple[Start, ...] = ()
    """How its files are started; the first way that a plan has the file for is taken."""
    media: Media = field(default_factory=Media)
    """How its program finds pictures that samples name by relative paths."""
    imports: Callable[[Draft, Version], Iterable[str]] = field(default=lambda _d, _v: ())
    """Distributions that its program imports for a plan, and that nothing it installs requires."""
    entry: Callable[[Plan, Dialect], tuple[str, ...]] | None = None
    """What starts its own program, from a bundle's root: a module and arguments. None: nothing."""
    resumes: str = ""
    """A further word for its program, with `{}` for the checkpoint that it is to go on from."""
    command: Callable[[Mapping[str, Json]], tuple[str, ...]] | None = None
    """The words of its program in what its script holds, which others may start as well."""
    encloses: Callable[[Plan, Mapping[str, str]], Artifact] | None = None
    """A further file with the texts of the others by their paths, for a cluster without disks."""
    run_by: str = ""
    """For a dialect of its own: the target whose program can run the same training instead."""
    heeds_launcher: bool = False
    """Whether its reader heeds the engine of the launcher's own file, so that none here says it."""
    counting: Callable[[Dialect, Mapping[str, Any]], Counting] | None = None
    """How it counts optimizer steps, by what is passed through; None: it trains nothing."""
    records: Callable[[Plan], tuple[Record, ...]] = field(default=lambda _: ())
    """The forms of records, of which data has one; nothing where they are not known."""
    verify: str = ""
    """Dotted name of the module whose `PROGRAMS` read the files (compiler/verify/contract.py)."""

    @property
    def is_read_only(self) -> bool:
        """Whether no plan writes any of its files."""
        return all(file.when is in_no_plan for file in self.files)

    def dialect(self, version: Version, software: Mapping[str, str] | None = None) -> Dialect:
        """The versions that select keys: as named in `software`, else what goes with the target's.

        Raises packaging.version.InvalidVersion for a named version that is none.
        """
        named, usual = software or {}, self.companions(version)
        beside = {
            name: package.release(named.get(name) or usual.get(name) or package.latest)
            for name, package in self.beside.items()
        }
        return {**beside, "": version, self.package: version}

    def release(self, text: str) -> Version:
        """The version of the own package that a text means; `4.40` is its newest patch."""
        return Package(self.supported, self.releases).release(text)

    def entries(self, dialect: Dialect) -> Iterator[Entry]:
        """The rows of every file that hold in a dialect."""
        for file in self.files:
            yield from (entry for entry in file.entries if entry.holds_in(dialect))

    def sayable(self, dialect: Dialect) -> frozenset[str]:
        """The slots that some row can say in a dialect."""
        return frozenset(slot for entry in self.entries(dialect) for slot in entry.slots)


# ── the usual rows ───────────────────────────────────────────────────────────────────────────────


def same(
    key: str,
    slot: str,
    source: str,
    *,
    since: str | None = None,
    until: str | None = None,
    absent: tuple[tuple[str, Any], ...] = (),
    when: Callable[[Plan], bool] = in_every_plan,
    package: str = "",
) -> Entry:
    """A key that holds a slot's value as it is; None is left out, tuples become lists."""

    def write(plan: Plan) -> Mapping[str, Json]:
        value = plan[slot]
        said = list(value) if isinstance(value, tuple) else value
        return {} if value is None else {key: said}

    def read(found: Mapping[str, Json]) -> Mapping[str, Any]:
        value = found[key]
        return {slot: tuple(value) if isinstance(value, list) else value}

    defaults = tuple((version, {slot: value}) for version, value in absent)
    return Entry((key,), (slot,), write, read, source, since, until, defaults, when, package)


def named(
    key: str,
    slot: str,
    words: Mapping[Any, Json],
    source: str,
    *,
    since: str | None = None,
    until: str | None = None,
    absent: tuple[tuple[str, Any], ...] = (),
    when: Callable[[Plan], bool] = in_every_plan,
    package: str = "",
) -> Entry:
    """A key that says a slot's value in the consumer's own word, one to one."""

    def write(plan: Plan) -> Mapping[str, Json]:
        value = plan[slot]
        return {key: words[value]} if value in words else {}

    def read(found: Mapping[str, Json]) -> Mapping[str, Any]:
        values = [value for value, word in words.items() if is_same(word, found[key])]
        return {slot: values[0]} if values else {}

    defaults = tuple((version, {slot: value}) for version, value in absent)
    return Entry((key,), (slot,), write, read, source, since, until, defaults, when, package)


def fixed(
    slot: str,
    value: Any,
    source: str,
    *,
    since: str | None = None,
    until: str | None = None,
    when: Callable[[Plan], bool] = in_every_plan,
    package: str = "",
) -> Entry:
    """What the consumer does by default: there is no key for the slot, and no other value."""
    absent = ((ALWAYS, {slot: value}),)
    return Entry(
        (), (slot,), lambda _: {}, lambda _: {}, source, since, until, absent, when, package
    )


def constant(
    key: str,
    value: Json,
    source: str,
    *,
    since: str | None = None,
    until: str | None = None,
    when: Callable[[Plan], bool] = in_every_plan,
    package: str = "",
) -> Entry:
    """A key that is written so in every plan in which it matters: it says no slot."""

    def write(_: Plan) -> Mapping[str, Json]:
        return {key: value}

    return Entry((key,), (), write, lambda _: {}, source, since, until, (), when, package)


def derived(
    key: str,
    write: Callable[[Plan], Json | None],
    source: str,
    *,
    since: str | None = None,
    until: str | None = None,
    when: Callable[[Plan], bool] = in_every_plan,
    package: str = "",
) -> Entry:
    """A key that follows from slots which other rows say; None leaves it out."""

    def keys(plan: Plan) -> Mapping[str, Json]:
        return {} if (value := write(plan)) is None else {key: value}

    return Entry((key,), (), keys, lambda _: {}, source, since, until, (), when, package)
