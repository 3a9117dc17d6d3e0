"""Compares what a program resolved with the plan, slot by slot."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from tunec.compiler.ir.plan import both_are_flat
from tunec.compiler.ir.values import LEFT_OPEN
from tunec.compiler.read import settle
from tunec.compiler.target import Entry, Json
from tunec.compiler.verify.contract import Case, Program, TranslatedAnswer, Where
from tunec.compiler.verify.delivery import values_of
from tunec.compiler.verify.warmup import same_warmup
from tunec.schemas.dotted_paths import flat, put

Status = Literal["same", "differs", "refused", "unchecked"]
_TOLERANCE: Final = 1e-12


class Difference(Struct, frozen=True):
    """A key whose resolved value differs from the plan."""

    slot: str
    """Empty if the key sets no slot."""
    key: str
    file: str
    expected: Any
    resolved: Any


class Check(Struct, frozen=True):
    """The result of one file given to one program."""

    spec: str
    file: str
    """The file's path as shown to users."""
    program: str
    consumer: str
    """Name and release, such as `deepspeed@0.18.9`."""
    status: Status
    compared: tuple[str, ...] = ()
    """The slots that the program resolves, including those that differ."""
    unsaid: tuple[str, ...] = ()
    """Slots that the file sets but this program does not resolve."""
    differences: tuple[Difference, ...] = ()
    extra: tuple[str, ...] = ()
    """Keys that the plan does not write and the program accepted."""
    reason: str = ""


def unchecked(case: Case, program: Program, consumer: str, reason: str) -> Check:
    """A check without a result: the program was not run, or gave no answer."""
    path = case.delivered[program.file].path
    return Check(case.spec, path, program.name, consumer, "unchecked", reason=reason)


def missing(case: Case, program: Program, path: str) -> Check:
    """A check of a file that the plan needs but that was not delivered."""
    reason = "the plan needs this file, but it is missing"
    lost = (Difference("", "", path, "a file", None),)
    name = f"{case.target.package}@{case.version}"
    return Check(case.spec, path, program.name, name, "differs", differences=lost, reason=reason)


def check(case: Case, program: Program, where: Where, heard: TranslatedAnswer) -> Check:
    """Compare a program's answer with the plan."""
    path = case.delivered[program.file].path
    begun = Check(case.spec, path, program.name, where.name, "same")
    if heard.unchecked:
        return unchecked(case, program, where.name, heard.unchecked)
    if heard.refused:
        return _refused(begun, case, program, heard)
    rows = [_row(each, case, path, heard.values) for each in case.rows(program.file)]
    compared = dict.fromkeys([s for row in rows for s in row.said] + [f.slot for f in heard.facts])
    unsaid = dict.fromkeys(slot for row in rows for slot in row.unsaid if slot not in compared)
    found = (
        *(each for row in rows for each in row.differences),
        *_facts(path, heard),
        *_ignored(path, case, program.file, heard),
    )
    return Check(
        begun.spec,
        path,
        program.name,
        where.name,
        "differs" if found else "same",
        tuple(slot for slot in compared if slot),
        tuple(unsaid),
        tuple(each for at, each in enumerate(found) if each not in found[:at]),
        _extra(case, program.file, heard),
    )


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────


class _Row(Struct, frozen=True):
    said: tuple[str, ...] = ()
    unsaid: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()


def _row(entry: Entry, case: Case, path: str, values: Mapping[str, Json]) -> _Row:
    """Compare one row's resolved keys, read back as slots; as keys if the row sets no slot."""
    known = [key for key in entry.keys if _stands(key, values)]
    if not known:
        return _Row(unsaid=entry.slots)
    if not entry.slots:
        return _Row(differences=tuple(_keys(entry, case, path, values)))
    present = {key: value for key in known if (value := _value(key, values)) is not None}
    if present:
        back = {**settle(entry, present), **same_warmup(entry, case, present)}
    else:
        back = dict(entry.defaults_at(case.dialect[entry.package]))
    # A row that writes nothing in this plan says its slots only where its keys came to something.
    plan, written = case.plan, entry.write(case.plan)
    closed = [s for s in entry.slots if s not in LEFT_OPEN or plan[s] is not None]
    said = tuple(slot for slot in closed if slot in back or written)
    wrong = [
        slot
        for slot in said
        if slot not in back
        or not (equal(back[slot], plan[slot]) or both_are_flat(slot, back[slot], plan))
    ]
    differences = tuple(_difference(entry, case, path, slot, values, back) for slot in wrong)
    return _Row(said, tuple(slot for slot in entry.slots if slot not in said), differences)


def _stands(key: str, values: Mapping[str, Json]) -> bool:
    """Whether a value was resolved for a key, or for keys below it."""
    return key in values or any(each.startswith(f"{key}.") for each in values)


def _value(key: str, values: Mapping[str, Json]) -> Json:
    if key in values:
        return values[key]
    inner: dict[str, Json] = {}
    for each, value in values.items():
        if each.startswith(f"{key}."):
            put(inner, each.removeprefix(f"{key}."), value)
    return inner


def _keys(entry: Entry, case: Case, path: str, values: Mapping[str, Json]) -> Iterator[Difference]:
    for key, wanted in entry.write(case.plan).items():
        if _stands(key, values) and not equal(wanted, _value(key, values)):
            yield Difference("", key, path, wanted, _value(key, values))


def _difference(
    entry: Entry,
    case: Case,
    path: str,
    slot: str,
    values: Mapping[str, Json],
    back: Mapping[str, Any],
) -> Difference:
    """The difference at the row's first key whose value is not the one that the plan writes."""
    written = entry.write(case.plan)
    for key in (*written, *entry.keys):
        wanted, resolved = written.get(key), _value(key, values)
        if _stands(key, values) and not equal(wanted, resolved):
            return Difference(slot, key, path, wanted, resolved)
    key = next((each for each in entry.keys if _stands(each, values)), entry.keys[0])
    return Difference(slot, key, path, case.plan[slot], back.get(slot))


def equal(wanted: Any, resolved: Any) -> bool:
    """Whether values are equal, allowing for JSON: 1 is 1.0, a tuple is a list, True is not 1."""
    if isinstance(wanted, bool) or isinstance(resolved, bool):
        return wanted is resolved
    if isinstance(wanted, int | float) and isinstance(resolved, int | float):
        return abs(wanted - resolved) <= _TOLERANCE * max(abs(wanted), abs(resolved))
    if isinstance(wanted, tuple | list) and isinstance(resolved, tuple | list):
        return len(wanted) == len(resolved) and all(map(equal, wanted, resolved))
    if isinstance(wanted, Mapping) and isinstance(resolved, Mapping):
        return wanted.keys() == resolved.keys() and all(
            equal(wanted[key], resolved[key]) for key in wanted
        )
    return bool(wanted == resolved)


# ── what is no row ───────────────────────────────────────────────────────────────────────────────


def _facts(path: str, heard: TranslatedAnswer) -> Iterator[Difference]:
    for fact in heard.facts:
        if not equal(fact.expected, fact.resolved):
            yield Difference(fact.slot, fact.key, path, fact.expected, fact.resolved)


def _ignored(path: str, case: Case, name: str, heard: TranslatedAnswer) -> Iterator[Difference]:
    found = flat(values_of(case, name))
    for key in heard.ignored:
        yield Difference("", key, path, None, found.get(key, "no program reads it"))


def _extra(case: Case, name: str, heard: TranslatedAnswer) -> tuple[str, ...]:
    """Keys that no row covers: they cannot differ from the plan, and are reported."""
    rows = {key for row in case.rows(name) for key in row.keys}
    written = flat(case.expected[name].values)
    return tuple(
        key
        for key in flat(values_of(case, name))
        if key not in written
        and key not in heard.ignored
        and not any(key == row or key.startswith(f"{row}.") for row in rows)
    )


def _refused(begun: Check, case: Case, program: Program, heard: TranslatedAnswer) -> Check:
    """A refusal with the program's message, and the keys whose values differ from the plan's."""
    changed = tuple(_changed(case, program.file, begun.file))
    named = tuple(each for each in changed if _is_named(each, heard.refused))
    return Check(
        begun.spec,
        begun.file,
        program.name,
        begun.consumer,
        "refused",
        differences=named or changed,
        reason=heard.refused,
    )


def _changed(case: Case, name: str, path: str) -> Iterator[Difference]:
    wanted = flat(case.expected[name].values)
    found = flat(values_of(case, name))
    for key in dict.fromkeys((*found, *wanted)):
        if key not in found or key not in wanted or not equal(wanted[key], found[key]):
            slot = _slot(case, name, key)
            yield Difference(slot, key, path, wanted.get(key), found.get(key))


def _slot(case: Case, name: str, key: str) -> str:
    """The slot that a key sets; empty if it sets none."""
    rows = (row for row in case.rows(name) if key in row.keys and row.slots)
    return next((row.slots[0] for row in rows), "")


def _is_named(difference: Difference, message: str) -> bool:
    last = difference.key.rpartition(".")[2]
    return last in message or (
        isinstance(difference.resolved, str) and difference.resolved in message
    )
