"""emit: write a plan as a target's files, checking each row so that no decided value is lost."""

import json
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from packaging.version import Version

import tunec.schemas
from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.wording import joined, otherwise
from tunec.compiler.ir.plan import Plan, both_are_flat
from tunec.compiler.ir.values import show
from tunec.compiler.json_check import UnknownKeyword, is_valid
from tunec.compiler.objective_faults import by_its_objective, elsewhere
from tunec.compiler.passthrough import PlacedKey, inside_a_value, place
from tunec.compiler.read import settle
from tunec.compiler.rendering import artifact
from tunec.compiler.target import Artifact, Dialect, Entry, File, Json, Target, refused
from tunec.compiler.unknown_releases import unsupported
from tunec.schemas.caches import cached
from tunec.schemas.dotted_paths import put
from tunec.schemas.frozen import replace

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator, ValidationError

_SCHEMAS: Final = Path(tunec.schemas.__file__).parent / "json"
Emitted = tuple[tuple[Artifact, ...], tuple[Diagnostic, ...]]


def emit(
    target: Target,
    plan: Plan,
    version: Version,
    *,
    software: Mapping[str, str] | None = None,
    header: Sequence[str] = (),
    drafting: "Drafting | None" = None,
) -> Emitted:
    """Write a plan as the files of a target, in memory.

    `software` names versions of other distributions that select keys (`{"deepspeed": "0.19"}`);
    `header` lines become comments in formats that have them. Returns the files and all faults. If a
    fault is an error, the files hold what could be expressed, and are meant for reading, not
    running. `drafting` writes each file, by default `draft_of`.
    """
    faults = (*unsupported(target, version, software), *_unmet(target, plan))
    if faults:
        return (), faults
    dialect = target.dialect(version, software)
    write = drafting or draft_of
    every = [write(file, plan, dialect, header) for file in target.files if file.when(plan)]
    missing = {draft.file.name for draft in every if draft.is_left_out}
    drafts = [each for each in every if not missing & {each.file.name, each.file.part_of}]
    drafts, refusals = _passed_through(target, plan, dialect, drafts, header)
    artifacts = tuple(draft.artifact for draft in drafts)
    checked = tuple(target.check(plan, version))
    lost = (
        *_losses(target, plan, version, drafts, _slots_of(checked)),
        *_unsaid(target, plan, version, drafts),
    )
    unsaid = by_its_objective(plan, lost)
    told = (*lost, *checked)
    found = [
        *(_left_out(draft, plan) for draft in every if draft.is_left_out),
        *unsaid,
        *refusals,
        *(fault for draft in drafts for fault in _own_faults(draft, told, dialect)),
        *(fault for draft in drafts for fault in draft.file.check(plan, dialect)),
        *checked,
    ]
    return artifacts, tuple(dict.fromkeys(found))


def _slots_of(told: Iterable[Diagnostic]) -> frozenset[str | None]:
    """The slots that errors are at."""
    return frozenset(at.path for each in told if each.severity == "error" for at in each.labels)


def _own_faults(
    draft: "Draft", told: Iterable[Diagnostic], dialect: Dialect
) -> Iterator[Diagnostic]:
    """The faults of a file, without those at keys of slots that are reported already."""
    slots = _slots_of(told)
    rows = (row for row in rows_of(draft.file, dialect) if slots.intersection(row.slots))
    keys = {key for row in rows for key in row.keys} if draft.faults and slots else set()
    yield from (each for each in draft.faults if not each.primary or each.primary.path not in keys)


def _passed_through(
    target: Target, plan: Plan, dialect: Dialect, drafts: list["Draft"], header: Sequence[str]
) -> tuple[list["Draft"], tuple[Diagnostic, ...]]:
    """The drafts with the keys that a plan passes through, and faults of those keys."""
    if not plan.runtime.extra:
        return drafts, ()
    placed, faults = place(target, (each.file for each in drafts), plan, dialect, schema)
    blocked = {
        id(each): each
        for draft in drafts
        for each in _without_room(draft, _placed_in(draft, placed))
    }
    fitting = [each for each in placed if id(each) not in blocked]
    whole = [_with_extra(each, _placed_in(each, fitting), dialect, header) for each in drafts]
    return whole, (*faults, *map(inside_a_value, blocked.values()))


def _placed_in(draft: "Draft", placed: Iterable[PlacedKey]) -> list[PlacedKey]:
    return [each for each in placed if each.file == draft.file.name]


def _without_room(draft: "Draft", mine: Iterable[PlacedKey]) -> Iterator[PlacedKey]:
    """The keys that would go below a value that is not a mapping."""
    values = _document([draft.artifact.values])
    for each in mine:
        if _has_room(values, each.path):
            put(values, each.path, _own(each.extra.value))
        else:
            yield each


def _has_room(document: Json, key: str) -> bool:
    for parent in key.split(".")[:-1]:
        document = document.get(parent, {})
        if not isinstance(document, dict):
            return False
    return True


def _with_extra(
    draft: "Draft", mine: Sequence[PlacedKey], dialect: Dialect, header: Sequence[str]
) -> "Draft":
    if not mine:
        return draft
    values = _document([draft.artifact.values, {each.path: each.extra.value for each in mine}])
    places = {each.path: each.extra.place for each in mine}
    faults = (
        replace(
            each, labels=tuple(replace(at, path=places.get(at.path, at.path)) for at in each.labels)
        )
        for each in invalid(draft.file, values, dialect)
    )
    return replace(draft, artifact=artifact(draft.file, values, header), faults=tuple(faults))


class Draft(Struct, frozen=True):
    """A file of a plan, the slots that its rows set, and the slots that do not read back."""

    file: File
    artifact: Artifact
    said: frozenset[str]
    lost: frozenset[str]
    faults: tuple[Diagnostic, ...]
    """Where the file is invalid for its reader."""

    @property
    def is_left_out(self) -> bool:
        """Whether the file is optional and cannot express everything, so that it is not written."""
        return self.file.is_optional and bool(self.lost)


Drafting = Callable[[File, Plan, Dialect, Sequence[str]], Draft]
"""Writes a file of a plan in a dialect, with header lines."""


def draft_of(file: File, plan: Plan, dialect: Dialect, header: Sequence[str]) -> Draft:
    """Write a file of a plan; the result depends only on the plan's slots."""
    said = (said_by(each, plan, dialect) for each in rows_of(file, dialect))
    return drafted(file, tuple(said), dialect, header)


class RowOutput(Struct, frozen=True):
    """What one row writes for a plan: keys, slots, and slots that do not read back unchanged."""

    keys: Mapping[str, Json]
    slots: tuple[str, ...]
    lost: tuple[str, ...]


_NOT_SAID: Final = RowOutput({}, (), ())
"""The result of a row that does not matter in a plan."""


def rows_of(file: File, dialect: Dialect) -> Iterator[Entry]:
    """The rows of a file that hold in a dialect."""
    return (each for each in file.entries if each.holds_in(dialect))


def said_by(entry: Entry, plan: Plan, dialect: Dialect) -> RowOutput:
    """What a row writes for a plan."""
    if not entry.when(plan):
        return _NOT_SAID
    written = entry.write(plan)
    return RowOutput(written, entry.slots, tuple(lost_slots(entry, written, plan, dialect)))


def drafted(
    file: File, rows: Sequence[RowOutput], dialect: Dialect, header: Sequence[str]
) -> Draft:
    """A file made of what its rows write."""
    said = frozenset(slot for each in rows for slot in each.slots)
    lost = frozenset(slot for each in rows for slot in each.lost)
    values = _document(each.keys for each in rows)
    if file.is_optional and lost:
        return Draft(file, Artifact(file.name, file.format, "", values), said, lost, ())
    written = artifact(file, values, header)
    return Draft(file, written, said, lost, tuple(invalid(file, values, dialect)))


def write_values(entries: Iterable[Entry], plan: Plan) -> dict[str, Json]:
    """The document that rows make for a plan; dotted keys become nested mappings."""
    return _document(entry.write(plan) for entry in entries)


def _document(written: Iterable[Mapping[str, Json]]) -> dict[str, Json]:
    document: dict[str, Json] = {}
    for each in written:
        for key, value in each.items():
            put(document, key, _own(value))
    return document


def _own(value: Json) -> Json:
    """A copy of a document's mappings, since later rows may add keys to them."""
    return {k: _own(v) for k, v in value.items()} if isinstance(value, dict) else value


def lost_slots(
    entry: Entry, written: Mapping[str, Json], plan: Plan, dialect: Dialect
) -> Iterator[str]:
    """The slots of a row whose values do not read back from what the row writes."""
    if written:
        back: Mapping[str, Any] = settle(entry, written)
    else:
        back = entry.defaults_at(dialect[entry.package])
    for slot in entry.slots:
        if slot not in back or not (
            back[slot] == plan[slot] or both_are_flat(slot, back[slot], plan)
        ):
            yield slot


# ── faults ───────────────────────────────────────────────────────────────────────────────────────


def _unmet(target: Target, plan: Plan) -> Iterator[Diagnostic]:
    for slot, needed in target.requires.items():
        if plan[slot] != needed:
            yield Diagnostic(
                "E0903",
                "error",
                f"{target.name} needs {slot} {show(slot, needed)}, but the plan has "
                f"{show(slot, plan[slot])}",
                (Label("decided here", path=slot),),
                help=f"pin {slot} to {show(slot, needed)}, or compile to another target",
            )


def _losses(
    target: Target, plan: Plan, version: Version, drafts: Iterable[Draft], refused: Container[Any]
) -> Iterator[Diagnostic]:
    """Report slots that do not come back from the files, except those `refused` already."""
    places: dict[str, list[str]] = {}
    for draft in drafts:
        for slot in sorted(draft.lost):
            places.setdefault(slot, []).append(draft.file.name)
    for slot, numbers in _by_choice(places).items():
        if slot in refused and not numbers:
            continue
        reason = f"no key of {joined(places[slot])} can hold this value"
        known = target.cannot.get(slot)
        told = _loss(target, plan, version, slot, known.reason if known and known.loses else reason)
        also = (f"nor {joined(numbers, 'or')}, which go with it",) if numbers else ()
        yield replace(told, notes=(*told.notes, *also))


def _by_choice(lost: Collection[str]) -> dict[str, list[str]]:
    """Lost slots; those of an optimizer, say, whose name is lost too are told with the name."""
    groups = {choice.partition(".")[0]: choice for choice in _CHOICES if choice in lost}
    found: dict[str, list[str]] = {}
    for slot in lost:
        choice = groups.get(slot.partition(".")[0], slot)
        numbers = found.setdefault(choice, [])
        if choice != slot:
            numbers.append(slot)
    return found


_CHOICES: Final = ("optimizer.name", "adapter.kind", "objective.kind")
"""Slots that say what the other slots of their group are numbers of."""


def _left_out(draft: Draft, plan: Plan) -> Diagnostic:
    values = joined((f"{slot} {show(slot, plan[slot])}" for slot in sorted(draft.lost)), "and")
    message = f"{draft.file.name} is left out: its reader has no key for {values}"
    notes = ("the other files describe the whole run without it",)
    return Diagnostic("file-left-out", "note", message, notes=notes)


def _unsaid(
    target: Target, plan: Plan, version: Version, drafts: Iterable[Draft]
) -> Iterator[Diagnostic]:
    said = frozenset(slot for draft in drafts for slot in draft.said)
    values = {slot: plan[slot] for slot, cannot in target.cannot.items() if cannot.loses}
    for slot, cannot in refused(target.cannot, said, values).items():
        yield _loss(target, plan, version, slot, cannot.reason)


def _loss(target: Target, plan: Plan, version: Version, slot: str, reason: str) -> Diagnostic:
    value = show(slot, plan[slot])
    return Diagnostic(
        "E0901",
        "error",
        f"{target.name} ({target.package} {version}) cannot express {slot} {value}",
        (Label("decided here", path=slot),),
        (reason,),
        help=f"{_other_release(target, plan, version, slot)}{otherwise(slot)}, or compile to "
        f"{elsewhere(plan, slot)}",
    )


def _other_release(target: Target, plan: Plan, version: Version, slot: str) -> str:
    """The nearest release that can express a decided value, if there is one."""
    known = [Version(each) for each in target.releases]
    able = [each for each in known if _can_say(target, plan, slot, each)]
    later = [each for each in able if each > version]
    if not able:
        return ""
    nearest = (later or able[-1:])[0]
    further = " or later" if later == known[known.index(nearest) :] else ""
    name = "" if target.name == target.package else f" (`--target {target.name}@{nearest}`)"
    return f"use {target.package} {nearest}{further}{name}, "


def _can_say(target: Target, plan: Plan, slot: str, version: Version) -> bool:
    """Whether the rows of a release can express the value of a slot."""
    dialect = target.dialect(version)
    files = (file for file in target.files if file.when(plan))
    rows = [
        said_by(row, plan, dialect)
        for file in files
        for row in rows_of(file, dialect)
        if slot in row.slots and row.when(plan)
    ]
    return bool(rows) and not any(slot in each.lost for each in rows)


FILLED: Final = "auto"
"""The value of a key that another file fills in (`File.filled`)."""


def invalid(file: File, values: Json, dialect: Dialect) -> Iterator[Diagnostic]:
    """Faults of a file by its reader's JSON Schema, if there is one."""
    name = file.schema(dialect) if file.schema else None
    if name is None or _is_valid(values, name):
        return
    for fault in validator(name).iter_errors(values):
        path = ".".join(str(part) for part in (*fault.absolute_path, *_absent(fault)))
        if fault.instance == FILLED and path in (file.filled or ()):
            continue  # the trainer puts a number there before the reader sees it
        yield Diagnostic(
            "E0904",
            "error",
            f"{file.name} is not valid for its reader: {fault.message}",
            (Label("in the emitted file", path=path),) if path else (),
            (f"according to the reader's own schema, {name}",),
        )


def _absent(fault: "ValidationError") -> Iterator[str]:
    """The required key that is missing, if that is the fault."""
    if fault.validator == "required":
        names: Any = fault.validator_value
        yield from (name for name in names if fault.message.startswith(repr(name)))


def _is_valid(values: Json, name: str) -> bool:
    """Whether a file matches a schema; False if only jsonschema can decide."""
    try:
        return is_valid(values, schema(name))
    except UnknownKeyword:
        return False


@cached()
def schema(name: str) -> Json:
    """A JSON Schema by its path below `schemas/json/`; loaded once."""
    text = (_SCHEMAS / name).read_text("utf-8")
    return json.loads(text)


@cached()
def validator(name: str) -> "Draft202012Validator":
    """The validator of a JSON Schema by its path below `schemas/json/`; built once."""
    from jsonschema import Draft202012Validator

    return Draft202012Validator(schema(name))
