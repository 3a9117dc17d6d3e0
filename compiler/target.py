"""What a target declares: rows (`Entry`) that tie a consumer's keys to tunec's slots, both ways."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypedDict, Unpack

from msgspec import UNSET, Struct, field
from packaging.version import Version

from tunec.compiler.analyses.counting import Counting
from tunec.compiler.consumers.moved_keys import Carry, Moved
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.ir.ledger import Definition
from tunec.compiler.ir.plan import Draft, Plan
from tunec.compiler.ir.values import is_same
from tunec.compiler.releases import Package, Releases, parsed, row_at
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
    """The condition of a row or file that every plan needs: always True."""
    return True


def in_no_plan(_: Plan) -> bool:
    """The condition of a row or file that is only read, never written: always False."""
    return False


def on_deepspeed(plan: Plan) -> bool:
    """Whether DeepSpeed runs the training step: the condition of its file, and of what names it."""
    return plan.parallel.engine == "deepspeed"


class Entry(Struct, frozen=True):
    """One row: keys of one file <-> slots.

    Where the row matters, `read(write(plan))` gives the plan's `slots`, or `absent` does if nothing
    is written. Emission checks that, so no value is lost silently.
    """

    keys: tuple[str, ...]
    """Dotted paths in the file, as `zero_optimization.stage`; none: a fixed behaviour."""
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
    """The plans in which the row matters. In other plans another row or file may set the slots."""
    package: str = ""
    """The distribution that `since`, `until` and `absent` count; empty: the target's own."""
    yields: bool = False
    """Whether a key that a spec passes through may overrule the row."""
    beside: tuple[str, ...] = ()
    """Those of `keys` that tell how the others are read, and have a meaning of their own."""

    def holds_at(self, version: Version) -> bool:
        """Whether the consumer knows these keys in that version."""
        is_there = self.since is None or version >= parsed(self.since)
        return is_there and (self.until is None or version < parsed(self.until))

    def holds_in(self, dialect: Dialect) -> bool:
        """Whether the consumer knows these keys in that dialect."""
        return self.holds_at(dialect[self.package])

    def defaults_at(self, version: Version) -> Mapping[str, Any]:
        """Slot values of an absent key in that version; empty if the consumer has none."""
        return row_at(version, self.absent, {})


class Phrase(Struct, frozen=True):
    """Keys that set a field of a spec whose slots depend on the rest of the plan: "all linear"."""

    keys: tuple[str, ...]
    say: Callable[[Mapping[str, Json]], Mapping[str, Any]]
    """The values for the keys that were found, each by its slot or its field of `train`."""
    source: str
    """Repository, version and symbol where the consumer defines the keys."""
    beside: tuple[str, ...] = ()
    """Keys that it also looks at, and that have a meaning of their own."""
    by_default: bool = False
    """Whether its program also does so if none of `keys` is given."""
    on_devices: tuple[str, bool] | None = None
    """A dtype that devices must have, or lack; a spec leaves it to them."""


class Cannot(Struct, frozen=True):
    """Why a target has no key for a slot.

    With `loses`, a decided value is lost: an error unless it is one of `harmless`. A lost slot of
    `by` alone is reported. In plans of `elsewhere` another target's file sets the slot.
    """

    reason: str
    loses: bool = False
    harmless: tuple[Any, ...] = ()
    by: tuple[str, ...] = ()
    elsewhere: Callable[[Plan], bool] = in_no_plan

    def refuses(self, value: Any) -> bool:
        """Whether a value that no row sets would be lost."""
        return self.loses and value not in self.harmless


def refused(
    cannot: Mapping[str, Cannot], said: Container[str], values: Mapping[str, Any]
) -> dict[str, Cannot]:
    """The slots that no row sets and whose values would be lost for a reason of their own."""
    lost = [s for s in cannot if s not in said and s in values and cannot[s].refuses(values[s])]
    return {slot: cannot[slot] for slot in lost if not {*lost} & {*cannot[slot].by}}


Format = Literal["json", "yaml", "env", "shell", "text"]


class File(Struct, frozen=True):
    """One file that a target writes, and how it is recognised when it is read."""

    name: str
    format: Format
    entries: tuple[Entry, ...]
    recognise: Callable[[Json], bool]
    """Whether a parsed document is this file, judged by its content."""
    schema: Callable[[Dialect], str | None] | None = None
    """Path below `schemas/json/` of the reader's JSON Schema for a dialect; None: there is none."""
    when: Callable[[Plan], bool] = in_every_plan
    """Whether a plan needs this file."""
    render: Callable[[Mapping[str, Json], Sequence[str]], str] | None = None
    """Text of the file from its values and header lines; None: the format alone decides it."""
    parse: Callable[[str], Json] | None = None
    """Makes a document from the file's text; None: the format's usual parser does."""
    check: Callable[[Plan, Dialect], Iterable[Diagnostic]] = field(default=lambda _p, _d: ())
    """What the file's reader refuses or silently changes although every key is well formed."""
    filled: frozenset[str] | None = None
    """Keys whose `auto` another file fills; for others it is no value. None: an ordinary word."""
    holds: Callable[[Json], Mapping[str, str]] | None = None
    """The texts of other files that are embedded in this one, by path."""
    block: tuple[str, Callable[[Dialect], str | None]] | None = None
    """If no schema covers the whole: a mapping in it, such as flags, and that mapping's schema."""
    phrases: tuple[Phrase, ...] = ()
    """What its keys set in a spec, beyond what the rows set."""
    foreign: Callable[[Mapping[str, Json]], Iterable[tuple[str, str]]] = field(default=lambda _: ())
    """Keys that have a slot, but values that only the file's reader understands; each with why."""
    carries: tuple[Carry, ...] = ()
    """How the program of a dialect is given keys that no row reads."""
    reads_powers: bool = False
    """Whether its program reads `2e-5` as a number, which is text in YAML 1.1."""
    takes: tuple[Carry, ...] = ()
    """TRL's arguments that the file holds and no row reads; what it passes on stays unchanged."""
    leaves: tuple[Moved, ...] = ()
    """Keys without a slot, and what other programs do if the key is missing."""
    defaults: Callable[[Mapping[str, Json]], Mapping[str, Json]] = field(default=lambda _: {})
    """What its program gives the Trainer for the keys found, where no key and no parser says it."""
    names: tuple[str, ...] = ()
    """Dotted keys that hold the name of another file of the run, alone or among other words."""
    over: str = ""
    """For flags beside a config: the config file in which a flag replaces the key of that name."""
    in_code: "File | None" = None
    """The arguments by which a Python program sets the same; None: those of this file's names."""
    alone: "File | None" = None
    """The variant of this file for a run in which none of the files that it can name exists."""
    is_optional: bool = False
    """Whether other files say the same; if it cannot be exact it is left out, with a note."""
    part_of: str = ""
    """The file that names this one, and is left out together with it; empty: it stands alone."""
    prepares: Callable[[Mapping[str, Json]], str] = field(default=lambda _: "")
    """Lines that run.sh has before it starts a program that reads this file, from its values."""


class Artifact(Struct, frozen=True):
    """One emitted file: a name relative to the output directory, and its text."""

    name: str
    format: Format
    text: str
    values: Mapping[str, Json]
    """The content of the text, as data."""


class Found(Struct, frozen=True):
    """One key of a document that was read: its value and its place."""

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
    """The version to use if neither the spec, the cluster nor the command line names one."""
    files: tuple[File, ...]
    cannot: Mapping[str, Cannot]
    requires: Mapping[str, Any] = field(default_factory=dict)
    """Slot values that the target cannot work without, such as `parallel.engine: deepspeed`."""
    needs: Callable[[Spec, Draft], Mapping[str, Any]] | None = None
    """Slot values like `requires` that depend on the spec or on groups decided so far."""
    prefers: Callable[[Spec, Draft, Version], Mapping[str, Any]] | None = None
    """Slot values by which it does more, such as saving checkpoints; given up if nothing fits."""
    takes_fsdp: bool = False
    """Whether it runs FSDP or leaves the engine to other files, so that FSDP may be chosen."""
    starts_workers: Callable[[Spec], bool] = field(default=lambda _: False)
    """Whether the program is started once and starts the other processes itself."""
    check: Callable[[Plan, Version], Iterable[Diagnostic]] = field(default=lambda _p, _v: ())
    """What the consumer refuses or silently changes although every key is well formed."""
    releases: tuple[str, ...] = ()
    """The newest release of each supported minor version, or each that changes keys, in order."""
    beside: Mapping[str, Package] = field(default_factory=dict)
    """Other distributions whose versions select keys of this target's files."""
    companions: Callable[[Version], Mapping[str, str]] = field(default=lambda _: {})
    """Versions of these distributions that match one of the own package, if none is named."""
    installs: Callable[[Version], Mapping[str, Releases]] = field(default=lambda _: {})
    """The releases of these distributions that one of the own package requires, by its metadata."""
    together: Callable[[Documents], Iterable[Definition]] = field(default=lambda _: ())
    """What several documents settle only in combination."""
    derives: Callable[[Callable[[str], Any]], Mapping[str, Any]] = field(default=lambda _: {})
    """Slots that its program computes from others if no key sets them; None: unknown."""
    starts: tuple[Start, ...] = ()
    """How its files are started: the first way for which the plan has the file is used."""
    media: Media = field(default_factory=Media)
    """How its program finds images that samples name by relative paths."""
    imports: Callable[[Draft, Version], Iterable[str]] = field(default=lambda _d, _v: ())
    """Distributions that its program imports for a plan, and that none of its packages requires."""
    entry: Callable[[Plan, Dialect], tuple[str, ...]] | None = None
    """The module and arguments that start its program from a bundle's root; None: there is none."""
    resumes: str = ""
    """A further argument for its program; `{}` stands for the checkpoint to resume from."""
    goes_on: Callable[[Plan], bool] = in_no_plan
    """Whether a second start continues from the last checkpoint in the output folder."""
    command: Callable[[Mapping[str, Json]], tuple[str, ...]] | None = None
    """The program's command line within its script, which other launchers may start as well."""
    encloses: Callable[[Plan, Mapping[str, str]], Artifact] | None = None
    """A further file that embeds the texts of the others, for a cluster without a shared disk."""
    run_by: str = ""
    """For a dialect without a program: the target whose program can run the same training."""
    takes_one_row: Callable[[Plan, Dialect], bool] = field(default=lambda *_: False)
    """Whether its program takes one row of a micro batch, so that more are accumulated."""
    heeds_launcher: bool = False
    """Whether its program takes the engine from the launcher's file, so that no own key sets it."""
    counting: Callable[[Dialect, Mapping[str, Any]], Counting] | None = None
    """How it counts optimizer steps, given the keys passed through; None: it trains nothing."""
    records: Callable[[Plan], tuple[Record, ...]] = field(default=lambda _: ())
    """The record formats that the data may have; empty: they are not known."""
    template_key: Callable[[Plan, Version], str] = field(default=lambda _p, _v: "")
    """The key of a chat template if, without it, the tokenizer must have one; else empty."""
    verify: str = ""
    """Dotted name of the module whose `PROGRAMS` read the files (compiler/verify/contract.py)."""

    @property
    def is_read_only(self) -> bool:
        """Whether no plan writes any of its files."""
        return all(file.when is in_no_plan for file in self.files)

    def dialect(self, version: Version, software: Mapping[str, str] | None = None) -> Dialect:
        """The versions that select keys: those named in `software`, else what matches the target's.

        Raises packaging.version.InvalidVersion if a named version is malformed.
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
        """The slots that some row can express in a dialect."""
        return frozenset(slot for entry in self.entries(dialect) for slot in entry.slots)


class Scope(TypedDict, total=False):
    """In which releases of which distribution, and in which plans, a row holds: as in `Entry`."""

    since: str | None
    until: str | None
    when: Callable[[Plan], bool]
    package: str


def same(
    key: str,
    slot: str,
    source: str,
    *,
    default: Any = UNSET,
    absent: tuple[tuple[str, Any], ...] = (),
    **scope: Unpack[Scope],
) -> Entry:
    """A key that holds a slot's value unchanged; None is left out, and tuples become lists.

    `default`: what absence means in every release; `absent`: since each of several releases.
    """

    def write(plan: Plan) -> Mapping[str, Json]:
        value = plan[slot]
        said = list(value) if isinstance(value, tuple) else value
        return {} if value is None else {key: said}

    def read(found: Mapping[str, Json]) -> Mapping[str, Any]:
        value = found[key]
        return {slot: tuple(value) if isinstance(value, list) else value}

    defaults = _defaults(slot, default, absent)
    return Entry((key,), (slot,), write, read, source, absent=defaults, **scope)


def named(
    key: str,
    slot: str,
    words: Mapping[Any, Json],
    source: str,
    *,
    default: Any = UNSET,
    absent: tuple[tuple[str, Any], ...] = (),
    **scope: Unpack[Scope],
) -> Entry:
    """A key that holds the consumer's own word for a slot's value, one to one.

    `default` and `absent` are slot values, as in `same`.
    """

    def write(plan: Plan) -> Mapping[str, Json]:
        value = plan[slot]
        return {key: words[value]} if value in words else {}

    def read(found: Mapping[str, Json]) -> Mapping[str, Any]:
        values = [value for value, word in words.items() if is_same(word, found[key])]
        return {slot: values[0]} if values else {}

    defaults = _defaults(slot, default, absent)
    return Entry((key,), (slot,), write, read, source, absent=defaults, **scope)


def _defaults(
    slot: str, default: Any, absent: tuple[tuple[str, Any], ...]
) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """The slot values of an absent key, by the first release that takes them."""
    every = () if default is UNSET else ((ALWAYS, default),)
    return tuple((since, {slot: value}) for since, value in (*every, *absent))


def fixed(slot: str, value: Any, source: str, **scope: Unpack[Scope]) -> Entry:
    """A slot with no key: the consumer always does this, and has no other value."""
    absent = _defaults(slot, value, ())
    return Entry((), (slot,), lambda _: {}, lambda _: {}, source, absent=absent, **scope)


def constant(key: str, value: Json, source: str, **scope: Unpack[Scope]) -> Entry:
    """A key that always has this value in the plans in which it matters; it sets no slot."""
    said = {key: value}
    return Entry((key,), (), lambda _: said, lambda _: {}, source, **scope)


def derived(
    key: str, write: Callable[[Plan], Json | None], source: str, **scope: Unpack[Scope]
) -> Entry:
    """A key that follows from slots which other rows set; None leaves it out."""

    def keys(plan: Plan) -> Mapping[str, Json]:
        return {} if (value := write(plan)) is None else {key: value}

    return Entry((key,), (), keys, lambda _: {}, source, **scope)
