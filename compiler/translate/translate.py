"""translate: the files of one run as files of other targets, or all reasons why that fails."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label, has_errors
from tunec.compiler.diagnostics.wording import did_you_mean, joined, nearest, shown
from tunec.compiler.frontend.checks import FILE_SLOTS, is_like_an_option
from tunec.compiler.frontend.nodes import plain
from tunec.compiler.frontend.parse import parse
from tunec.compiler.ir.ledger import Definition, Rank
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.ir.values import show
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place
from tunec.compiler.lints.documents import Reading, read_files, read_texts
from tunec.compiler.lints.emission import spoken_by
from tunec.compiler.lints.environment import Environment
from tunec.compiler.lints.kinds import kind_of
from tunec.compiler.lints.lint import check
from tunec.compiler.lints.neighbours import catalogue_model
from tunec.compiler.lints.repository import reach_of
from tunec.compiler.read import fitted
from tunec.compiler.requirements import Asked
from tunec.compiler.target import Artifact, Target
from tunec.compiler.translate.accounts import Account, accounts, in_part, kept_apart, left_out
from tunec.compiler.translate.faults import OF_THE_DATA, PLACES
from tunec.compiler.translate.leftovers import hidden, may_matter
from tunec.compiler.translate.phrases import foreign
from tunec.compiler.translate.places import placed
from tunec.compiler.translate.scripts import not_understood, slots_of
from tunec.compiler.translate.sources import Sources, sources_of
from tunec.compiler.translate.writing import Starting, Written, starting_of, write
from tunec.compiler.version import __version__
from tunec.schemas.frozen import replace
from tunec.schemas.source import COMMAND_LINE, start_of

_COMMAND_LINE: Final = "command line"
_OF_THE_MODEL: Final = (
    *("model.family", "model.kind", "model.parameters", "adapter.trainable_parameters"),
)
"""Slots that follow from the model, whoever trains it."""


class BadSetting(ValueError):
    """An invalid `SLOT=VALUE`; the message gives the reason."""


class Translated(Struct, frozen=True):
    """The files of each target, and the diagnostics."""

    artifacts: Mapping[str, tuple[Artifact, ...]]
    """The files by the target's name; none if there is an error."""
    diagnostics: tuple[Diagnostic, ...]
    sources: Mapping[str, str] = field(default_factory=dict)
    """The text of each file that was read, by the name that spans use."""
    accounts: tuple[Account, ...] = ()
    """The outcome of each key of these files."""

    @property
    def ok(self) -> bool:
        """Whether the new files express the run that was read."""
        return not has_errors(self.diagnostics)


def translate_files(
    paths: Sequence[Path],
    asked: Sequence[Asked],
    targets: Mapping[str, Target],
    environment: Environment | None = None,
    *,
    given: Iterable[Definition] = (),
    without: Iterable[str] = (),
) -> Translated:
    """Read files, with those that they refer to, and write them for the requested targets.

    `given` are slots that the command line sets, `without` keys of the files that may be left out.
    Nothing is written to disk.
    """
    surroundings = environment or Environment()
    reach = reach_of(paths, allow_outside=surroundings.allow_outside)
    reading = read_files(paths, targets, surroundings.readers, reach)
    return _translated(reading, asked, targets, surroundings, given, frozenset(without))


def translate_texts(
    texts: Mapping[str, str],
    asked: Sequence[Asked],
    targets: Mapping[str, Target],
    environment: Environment | None = None,
    *,
    given: Iterable[Definition] = (),
    without: Iterable[str] = (),
) -> Translated:
    """Translate texts, by file name, as `translate_files` does files; nothing is read from disk."""
    surroundings = environment or Environment()
    reading = read_texts(texts, targets, surroundings.readers)
    return _translated(reading, asked, targets, surroundings, given, frozenset(without))


def given_slots(words: Iterable[str]) -> tuple[Definition, ...]:
    """The definitions by `SLOT=VALUE` words.

    Raises Ungiven for a word without a slot, or a value of another type. Values are YAML:
    `batch.micro=2`, `adapter.targets=[q_proj, v_proj]`, `zero.nvme_path=null`.
    """
    return tuple(_given(word) for word in words)


def _given(word: str) -> Definition:
    slot, equals, text = word.partition("=")
    if not equals:
        raise BadSetting(f"give a slot as SLOT=VALUE, not as {word!r}")
    if slot not in SLOTS:
        hint = did_you_mean(nearest(slot, SLOTS)) or "`tunec catalog slots` lists them"
        raise BadSetting(f"there is no slot {slot!r}; {hint}")
    root, faults = parse(f"value: {text}", slot, "yaml")
    if root is None or faults:
        raise BadSetting(f"{text!r} is not a value of {slot}")
    value = plain(root)["value"]
    try:
        fit = fitted(slot, _typed(slot, value))
    except ValueError as fault:
        raise BadSetting(f"{fault}: {SLOTS[slot].doc}") from None
    if slot in FILE_SLOTS and isinstance(fit, str) and is_like_an_option(fit):
        raise BadSetting(f"{slot} cannot be {text!r}, which is an option, and no name of a file")
    return Definition(slot, fit, Rank.PIN, _COMMAND_LINE, "given on the command line")


def _typed(slot: str, value: Any) -> Any:
    """The value in the slot's type: YAML 1.1 reads `1e-5` as text; `a, b` is a list."""
    if SLOTS[slot].type == tuple[str, ...] and isinstance(value, str):
        return tuple(map(str.strip, value.split(",")))
    if isinstance(value, list):
        return tuple(value)
    is_number = SLOTS[slot].type in (float, float | None)
    return float(value) if is_number and isinstance(value, str) else value


# ── the flow ─────────────────────────────────────────────────────────────────────────────────────


def _translated(
    reading: Reading,
    asked: Sequence[Asked],
    targets: Mapping[str, Target],
    environment: Environment,
    given: Iterable[Definition],
    without: frozenset[str],
) -> Translated:
    run = LintContext(
        reading.documents, environment, targets, reading.missing, reading.unread, catalogue_model
    )
    sources = sources_of(reading, run, given, to_files=True)
    software = sources.run.environment.software  # releases that nobody names are those read
    header = f"tunec {__version__}; translated from {', '.join(map(_name, sources.texts))}"
    is_unread = not sources.run.documents and has_errors(sources.diagnostics)
    is_alone = not _has_engine_file(sources, asked)
    start = Starting() if is_unread else starting_of(asked, sources, software)
    written = {
        each[0].name: write(each, sources, software, header, is_alone=is_alone, start=start)
        for each in (() if is_unread else asked)
    }
    every = accounts(sources, written.values())
    found = [
        *sources.diagnostics,
        *_left_behind(sources, every, without),
        *(fault for each in written.values() for fault in each.diagnostics),
    ]
    if not has_errors(found):
        for each in asked:
            found += _objections(each, written[each[0].name], sources, environment.software)
        found += parts_only(sources, without)
        found += left_out([one for one in every if not is_named(one.path, without)])
        found += in_part(kept for each in written.values() for kept in each.kept)
        found += [*_not_carried(sources, asked, written), *assumed(sources, environment)]
    artifacts = {name: each.artifacts for name, each in written.items()}
    said = tuple(dict.fromkeys(placed(found, sources, asked)))
    return Translated({} if has_errors(found) else artifacts, said, sources.texts, every)


def _name(path: str) -> str:
    return Path(path).name


def _has_engine_file(sources: Sources, asked: Sequence[Asked]) -> bool:
    """Whether a file of DeepSpeed was read, is named, or will be written."""
    read = sources.run.documents
    kinds = {each.kind for each in read}
    kinds |= {kind_of(target, file) for target, _ in asked for file in target.files}
    named = (key in each.found for each in read if each.file for key in each.file.names)
    return "deepspeed" in kinds or any(named)


def _left_behind(
    sources: Sources, every: Iterable[Account], without: frozenset[str]
) -> Iterator[Diagnostic]:
    """Errors for keys that no target has, except those that may be left out."""
    lost = dict(_lost(sources, every))
    yield from (fault for path, fault in lost.items() if not is_named(path, without))
    left = [*lost, *(each.path for each in every if each.outcome in ("harmless", "other"))]
    for name in sorted(without):
        if not any(is_named(path, {name}) for path in left):
            yield not_understood(
                f"{leaving(name)} names no key that is left out",
                (Label("", start_of(COMMAND_LINE), name),),
                "remove the option, or name the key as in the message about it",
            )


def _lost(sources: Sources, every: Iterable[Account]) -> Iterator[tuple[str, Diagnostic]]:
    """The errors for keys that would be lost, by key."""
    for each in every:
        place = each.read.place
        if each.outcome == "lost":
            slots = tuple(_settled(place, sources))
            yield (
                place.path,
                not_understood(
                    f"{place.path} {shown(place.value)} has no counterpart",
                    (place.key_label("would be dropped"),),
                    f"{_giving(slots)}take it out of the file, or leave it out with "
                    f"{leaving(place.path)}",
                    tuple(_why(each, slots)),
                ),
            )
    for missing in sources.run.missing:
        yield (
            missing.place.path,
            not_understood(
                f"{missing.path} is named here but cannot be read: {missing.why}",
                (missing.place.label("named here"),),
                f"supply the file, or leave it out with {leaving(missing.place.path)}",
            ),
        )
    for document in sources.run.documents:
        for key in hidden(document):
            yield (
                key,
                not_understood(
                    f"{key} has no counterpart, and its value is known only when "
                    f"{document.name} runs",
                    (Label("in this script", document.start(), key),),
                    f"take it out of the script, or leave it out with {leaving(key)}",
                ),
            )


def _settled(place: Place, sources: Sources) -> Iterator[str]:
    """The unset slots of a key, or all of its slots if every one is set differently."""
    file, path = place.document.file, place.path
    known, every = sources.known, dict.fromkeys(slots_of(place.document, path))
    rows = [each for each in (file.entries if file else ()) if may_matter(each, known)]
    open_slots = {slot for each in rows for slot in each.slots if slot not in known.values}
    yield from [slot for slot in every if slot in open_slots] or every


def _giving(slots: Sequence[str]) -> str:
    return f"give {' '.join(f'--set {slot}=VALUE' for slot in slots)}, " if slots else ""


def _why(account: Account, slots: Sequence[str]) -> Iterator[str]:
    known = kept_apart(account.read)
    if known is not None:
        yield known
    elif slots:
        yield f"its value does not settle {joined(slots, 'and')}"


def leaving(key: str) -> str:
    """The option that leaves a key out, for a shell; a key that begins with a dash needs `=`."""
    word = shlex.quote(key)
    return f"--without={word}" if key.startswith("-") else f"--without {word}"


def is_named(path: str, names: Iterable[str]) -> bool:
    """Whether a key, or its parent, is among names."""
    return any(path == name or path.startswith(f"{name}.") for name in names)


def _not_carried(
    sources: Sources, asked: Sequence[Asked], written: Mapping[str, Written]
) -> Iterator[Diagnostic]:
    """Slots that no target can express, except those of the run's other programs."""
    covered = frozenset(slot for each in written.values() for slot in each.covered)
    said = frozenset(slot for each in written.values() for slot in each.said)
    said |= covered & sources.idle
    tables = [target for target, _ in asked]
    values_of = sources.known.values
    left = [
        slot
        for slot in SLOTS
        if sources.is_written(slot)
        and values_of.get(slot) not in (None, ())
        and slot not in said
        and slot not in _OF_THE_MODEL
        and not (slot == "launch.script" and sources.programs)
        and not any(_is_taken(target, slot, values_of[slot]) for target in tables)
    ]
    if not left:
        return
    values = [f"{slot} {show(slot, values_of[slot])}" for slot in left]
    reasons: dict[str, list[str]] = {}
    for slot in left:
        for target in tables:
            if slot in target.cannot:
                reasons.setdefault(target.cannot[slot].reason, []).append(slot)
    labels = tuple(label for label in map(sources.label, left) if label.span is not None)
    names = joined((target.name for target in tables), "and")
    yield Diagnostic(
        "not-carried-over",
        "warning",
        f"{names} cannot express {joined(values, 'and')}",
        labels,
        tuple(f"{reason} ({', '.join(dict.fromkeys(slots))})" for reason, slots in reasons.items()),
        help="make sure that another file of the new run sets the same, or add a target with --to",
    )


def parts_only(sources: Sources, without: Iterable[str]) -> Iterator[Diagnostic]:
    """Warnings about meanings that only a dialect's own program knows."""
    for at, why in foreign(sources.run):
        slots = tuple(slots_of(at.document, at.path))
        if not is_named(at.path, without) and not any(map(sources.is_given, slots)):
            is_data = any(each.startswith("data.") for each in slots)
            yield Diagnostic(
                "not-carried-over",
                "warning",
                f"only part of {at.path} is carried over",
                (at.key_label("the name alone is carried over" if is_data else "in part"),),
                (why,),
                help=f"{'convert the data to that format' if is_data else 'check the new run'}, "
                f"or silence this with {leaving(at.path)}",
            )


def _is_taken(target: Target, slot: str, value: Any) -> bool:
    """Whether the target requires the slot, does the same anyway, or reports it."""
    cannot = target.cannot.get(slot)
    if cannot is None:
        return slot in target.requires
    is_reported = slot in (*OF_THE_DATA, *PLACES) and cannot.refuses(value)
    return is_reported or slot in target.requires or value in cannot.harmless


def assumed(sources: Sources, environment: Environment) -> Iterator[Diagnostic]:
    """A note about assumed versions, which decide the defaults of absent keys."""
    packages = {
        each.target.package: each for each in reversed(sources.run.documents) if each.target
    }
    unnamed = sorted(packages.keys() - environment.software.keys())
    if unnamed:
        releases = joined((str(sources.run.release(name)) for name in unnamed), "and")
        yield Diagnostic(
            "version-assumed",
            "note",
            f"keys that the files leave out take the defaults of {releases}",
            tuple(Label("", packages[name].start()) for name in unnamed[:1]),
            help="choose another release with --from NAME@VERSION or --software NAME=VERSION",
        )


def _objections(
    asked: Asked, written: Written, sources: Sources, named: Mapping[str, str]
) -> Iterator[Diagnostic]:
    """Errors of rules by named or brought releases; faults of the old files too are warnings."""
    target, version = asked
    brought = {target.package, *target.companions(version)}
    dialect = target.dialect(version, named)
    environment = replace(
        sources.run.environment,
        software={**named, **{name: str(dialect[name]) for name in brought & dialect.keys()}},
        readers=(target.name,),
    )
    texts = {each.name: each.text for each in written.artifacts}
    documents = read_texts(texts, sources.run.targets, (target.name,)).documents
    found = [
        each
        for each in spoken_by(LintContext(documents, environment, sources.run.targets))
        if each.severity == "error" or each.is_bug
    ]
    if not found:
        return
    before = {each.id for each in check(sources.run) if not each.is_bug}
    yield from (each if each.is_bug else _objection(each, each.id in before) for each in found)


def _objection(each: Diagnostic, was: bool) -> Diagnostic:
    return replace(
        each,
        severity="warning" if was else "error",
        labels=tuple(replace(label, span=None) for label in each.labels),
        notes=(*each.notes, *(("the original files have this fault too",) if was else ())),
        fix=None,
    )
