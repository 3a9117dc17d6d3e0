"""to_spec: the files of one run as a spec, with everything that the user must settle."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Diagnostic, has_errors
from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.load import Loaded, load_mapping, load_text
from tunec.compiler.ir.ledger import Definition, Rank
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.documents import Reading, read_files
from tunec.compiler.lints.environment import Environment
from tunec.compiler.lints.neighbours import catalogue_model
from tunec.compiler.lints.repository import reach_of
from tunec.compiler.locate import locate
from tunec.compiler.passes.fit.fit import GROUPS as LAYOUT
from tunec.compiler.passes.fit.problem import SHAPE_SLOTS
from tunec.compiler.requirements import Asked, Resolve, together
from tunec.compiler.target import Target
from tunec.compiler.translate.arguments import arguments_of, is_argument
from tunec.compiler.translate.bundles import open_bundle, seen_from, with_files, without_script
from tunec.compiler.translate.documents import is_given_flags
from tunec.compiler.translate.foundation import Fields, Foundation, SpecOptions, foundation
from tunec.compiler.translate.intents import Values, intents, short
from tunec.compiler.translate.passthrough import (
    DroppedKey,
    PassedKey,
    carried,
    differing_keys,
    extra_of,
    follows,
)
from tunec.compiler.translate.phrases import phrases_of
from tunec.compiler.translate.places import placed
from tunec.compiler.translate.python_scripts import task_of
from tunec.compiler.translate.reconciliation import (
    ReconciledSpec,
    beginning,
    refused_slots,
    settled,
)
from tunec.compiler.translate.sources import Sources, sources_of
from tunec.compiler.translate.spec_notes import comments, findings, footer, unsaid
from tunec.compiler.translate.spec_text import spec_text
from tunec.compiler.translate.statements import dialect_of
from tunec.compiler.translate.translate import is_named
from tunec.compiler.translate.written_targets import (
    is_dialect,
    new_places,
    own_loops,
    targets_of,
    with_places,
)
from tunec.schemas.frozen import replace

_OPEN: Final = "it follows from the rest of the spec, which has no plan yet"


class Asking(Struct, frozen=True):
    """The options for making a spec."""

    environment: Environment
    targets: Mapping[str, Target]
    """The dialects that can be read."""
    known: Mapping[str, Target]
    """The targets that a spec compiles to."""
    resolve: Resolve
    beside: SpecOptions = SpecOptions()
    given: tuple[Definition, ...] = ()
    """Slots that the command line sets."""
    without: frozenset[str] = frozenset()
    """Keys of the files that may be left out."""
    output: Path | None = None
    """The path of the future spec, from which its paths count."""
    head: tuple[str, ...] = ()
    """Comments at the top of the spec."""

    @property
    def name(self) -> str:
        """The name of the spec in diagnostics."""
        return "<spec>" if self.output is None else str(self.output)

    @property
    def allow_outside(self) -> bool:
        """Whether files, and the spec, may name files outside of their project."""
        return self.environment.allow_outside

    @property
    def place(self) -> Path:
        """The directory from which its paths count."""
        return Path() if self.output is None else self.output.parent

    def load(self, data: Mapping[str, Any]) -> Loaded:
        """Load a spec given as data, as if it were at its future path."""
        return load_mapping(data, base=self.place, allow_outside=self.allow_outside)

    def load_text(self, text: str) -> Loaded:
        """Load the spec from its text."""
        return load_text(
            text,
            self.name,
            base=self.place,
            targets=tuple(self.known),
            allow_outside=self.allow_outside,
        )


class SpecResult(Struct, frozen=True):
    """A spec for files, and its diagnostics."""

    text: str | None
    """None: nothing could be read. If there are errors, the user must settle parts of it."""
    diagnostics: tuple[Diagnostic, ...]
    sources: Mapping[str, str]
    """The text of each file that was read, and of the spec, by the name that spans use."""

    @property
    def ok(self) -> bool:
        """Whether the spec expresses the run that was read, and can be compiled."""
        return not has_errors(self.diagnostics)


class DecidedRun(Struct, frozen=True):
    """The run of some files, with a spec that decides it."""

    sources: Sources
    asked: tuple[Asked, ...]
    base: Foundation
    settled: ReconciledSpec
    keys: tuple[PassedKey | DroppedKey, ...]
    """The keys without a slot."""


def spec_of_files(paths: Sequence[Path], asking: Asking) -> SpecResult:
    """Read the files of a run, with those that they refer to, and express them as a spec.

    Nothing is written to disk.
    """
    sources = sources_of_files(paths, asking)
    if not sources.run.documents:
        return SpecResult(None, tuple(placed(sources.diagnostics, sources, ())), sources.texts)
    found = decided(sources, asking)
    dropped = [each for each in found.keys if isinstance(each, DroppedKey)]
    if found.settled.planned.plan is None:
        dropped += [DroppedKey(each.place, _OPEN) for each in sources.leftovers if follows(each)]
    dropped += differing_keys(sources, found.settled.planned, found.asked)
    return _specified(sources, found.settled, found.base, dropped, found.asked, asking)


def sources_of_files(paths: Sequence[Path], asking: Asking) -> Sources:
    """What files set, together with those that they refer to; possibly nothing."""
    bundle = open_bundle(paths, asking.known)
    paths = with_files(paths, bundle)
    reach = reach_of(paths, allow_outside=asking.allow_outside)
    reading = read_files(paths, asking.targets, asking.environment.readers, reach)
    return _sources(without_script(reading, bundle), asking)


def decided(sources: Sources, asking: Asking) -> DecidedRun:
    """The run that files configure, planned with placeholders for missing fields."""
    bundle = open_bundle((Path(each) for each in sources.texts), asking.known)
    known = seen_from(_known(sources, asking.known), bundle, asking.place)
    asked = _dialects(sources, asking)
    rest = (each for each in sources.leftovers if not follows(each))
    phrases, loops = phrases_of(sources.run), own_loops(sources.run.documents)
    rest = (each for each in rest if not (phrases.are_of(each.place) or is_argument(each.place)))
    rest = (each for each in rest if each.place.document.name not in loops)
    keys = tuple(carried(rest, asked, sources))
    base = foundation(known, asking.environment, asking.beside)
    versions = {**_versions(asked, keys, asking), **task_of(sources.run)}
    found = _settled(sources, base, (known, phrases.words), asked, asking, versions)
    return DecidedRun(sources, asked, base, found, keys)


# ── what is known ────────────────────────────────────────────────────────────────────────────────


def _sources(reading: Reading, asking: Asking) -> Sources:
    """What files set; the hardware only adds the number of processes if they leave it open."""

    def read(around: Environment) -> Sources:
        documents, missing, unread = reading.documents, reading.missing, reading.unread
        run = LintContext(documents, around, asking.targets, missing, unread, catalogue_model)
        return sources_of(reading, run, asking.given)

    around = asking.environment
    alone = read(replace(around, cluster=None, devices={}))
    return alone if "parallel.world" in alone.known.values else read(around)


def _known(sources: Sources, targets: Mapping[str, Target]) -> Values:
    """The known slots without disputes; scripts name files by their paths in a bundle."""
    values = dict(sources.known.values)
    for one, _ in sources.ledger.contradictions():
        if one.rank == Rank.OBSERVED:
            values.pop(one.slot, None)
    for slot in sources.idle:
        values.pop(slot, None)
    script = values.get("launch.script")
    if sources.programs & _read_only(sources):
        values.pop("launch.script", None)  # another program runs what its own script would
    elif script is not None:
        values["launch.script"] = _bundled(script, sources, targets)
    return values


def _read_only(sources: Sources) -> frozenset[str]:
    tables = (each.target for each in sources.run.documents if each.target is not None)
    return frozenset(table.name for table in tables if table.is_read_only)


def _bundled(script: str, sources: Sources, targets: Mapping[str, Target]) -> str:
    """The words of a command, with the new paths of files that were read.

    A script that had flags gets the file that now holds the Trainer's, and the other flags.
    """
    names = targets_of(sources.run.documents, targets)
    found = new_places(sources.run.documents, (targets[name] for name in names))
    words = with_places(script, found)
    flags = [place for each, place in found if is_given_flags(each)]
    more = [*flags, *arguments_of(sources)] if len(words) == 1 else []
    return shlex.join([*words, *more])


def _dialects(sources: Sources, asking: Asking) -> tuple[Asked, ...]:
    names = targets_of(sources.run.documents, asking.known)
    return together(asking.resolve, names, sources.run.environment.software)


# ── the spec ─────────────────────────────────────────────────────────────────────────────────────


def _versions(
    asked: Sequence[Asked], keys: Iterable[PassedKey | DroppedKey], asking: Asking
) -> Fields:
    """Targets with the releases that the user gave, other releases, and keys passed through."""
    named = asking.environment.software
    cluster = asking.environment.cluster
    own = cluster.software if cluster is not None else {}
    packages = {target.package for target, _ in asked}
    targets = [
        f"{target.name}@{version}" if target.package in named else target.name
        for target, version in asked
    ]
    others = {
        name: version
        for name, version in named.items()
        if name not in packages and own.get(name) != version
    }
    extra = extra_of(each for each in keys if isinstance(each, PassedKey))
    every = {("targets",): targets, ("software",): others, ("extra",): extra}
    return {("tunec",): 1, **{path: value for path, value in every.items() if value}}


def _settled(
    sources: Sources,
    base: Foundation,
    said: tuple[Values, Values],
    asked: Sequence[Asked],
    asking: Asking,
    versions: Fields,
) -> ReconciledSpec:
    """The spec that decides the known slots; `said` are these, and the values of phrases.

    If another program runs a dialect's settings, those that it cannot express are given up, and if
    nothing fits, those that were not requested.
    """
    known, words = said
    candidate = beginning({**versions, **base.measured()}, intents({**known, **words}))
    layout, wholly = _layout(sources, known), not base.is_whole
    given_up: dict[str, Any] = {}
    while True:
        held = {slot: value for slot, value in known.items() if slot not in given_up}
        shape = [slot for slot in layout if slot in held]
        found = settled(candidate, held, shape, asked, asking.load, wholly=wholly)
        usual = [slot for slot in held if _is_usual(sources, slot)]
        refused = refused_slots(found, asked, usual) if is_dialect(sources.run) else ()
        if not refused:
            return found.without(slot for slot in given_up if not _is_usual(sources, slot))
        given_up |= dict.fromkeys(refused)


def _layout(sources: Sources, known: Values) -> tuple[str, ...]:
    """The slots of the layout that files set, or whose default a search would not choose.

    If the engine without sharding is undecided, two slots express that it is none of these.
    """
    engine = ("parallel.engine",) if "parallel.engine" in known else ("zero.stage", "fsdp.version")
    return tuple(
        slot
        for slot in SLOTS
        if SLOTS[slot].group in LAYOUT
        and slot in known
        and (slot in engine or _is_said(slot, sources.ledger.winner(slot)))
    )


def _is_usual(sources: Sources, slot: str) -> bool:
    """Whether a slot has the default of the files' program."""
    if not sources.is_written(slot):
        return True
    tables = (each.target for each in sources.run.documents if each.target is not None)
    for table in {each.name: each for each in tables}.values():
        dialect = dialect_of(sources.run, table)
        usual = (each.defaults_at(dialect[each.package]) for each in table.entries(dialect))
        if any(each.get(slot) == sources.known.values[slot] for each in usual):
            return True
    return False


def _is_said(slot: str, winner: Definition | None) -> bool:
    group = SLOTS[slot].group
    is_searched = group in ("states", "batch") or slot in SHAPE_SLOTS
    by_default = winner is not None and winner.rank == Rank.CONSUMER
    is_written = winner is not None and winner.rank >= Rank.OBSERVED
    return is_written or (by_default and is_searched and group != "parallel")


def _specified(
    sources: Sources,
    found: ReconciledSpec,
    base: Foundation,
    lost: Iterable[DroppedKey],
    asked: Sequence[Asked],
    asking: Asking,
) -> SpecResult:
    """The text with its diagnostics."""
    dropped = [each for each in lost if not is_named(each.place.path, asking.without)]
    measured = found.candidate.data()
    data = found.candidate.on({**found.candidate.base, **base.fields}).data()
    beside = comments(sources, found, base)
    head = "".join(f"# {line}\n" for line in asking.head)
    text = head + spec_text(short(data), beside, base.missing) + footer(dropped)
    said = (
        *sources.diagnostics,
        *findings(sources, found, dropped, asking.without, asking.environment),
        *unsaid(text, asking.name, base),
        *(_faults(measured, text, asking) if base.missing else _compiled(text, asked, asking)),
    )
    said = tuple(dict.fromkeys(placed(said, sources, asked)))
    return SpecResult(text, said, {**sources.texts, asking.name: text})


def _compiled(text: str, asked: Sequence[Asked], asking: Asking) -> tuple[Diagnostic, ...]:
    """The errors that prevent the spec from being compiled."""
    found = compile_spec(asking.load_text(text), asked).diagnostics
    return tuple(each for each in found if each.severity == "error")


def _faults(measured: Mapping[str, Any], text: str, asking: Asking) -> tuple[Diagnostic, ...]:
    """The errors of an unfinished spec, apart from its open fields."""
    found = (each for each in asking.load(measured).diagnostics if each.severity == "error")
    bare = (
        replace(each, labels=tuple(replace(label, span=None) for label in each.labels))
        for each in found
    )
    return locate(bare, asking.load_text(text))
