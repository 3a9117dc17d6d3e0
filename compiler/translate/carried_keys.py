"""Keys without a slot in the new files: unchanged, or under their current name."""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct
from packaging.version import Version

from tunec.compiler.consumers.moved_keys import MOVED, Carry, Moved
from tunec.compiler.frontend.nodes import Node
from tunec.compiler.lints.document import TRL, Document, Place
from tunec.compiler.lints.kinds import kind_of, known_keys
from tunec.compiler.read import WRONG_SHAPE
from tunec.compiler.target import Dialect, File, Json, Target
from tunec.compiler.translate.admission import PACKAGES, admits, knows, schema_of
from tunec.compiler.translate.leftovers import Read
from tunec.compiler.translate.program_defaults import differing
from tunec.compiler.translate.sources import Sources
from tunec.compiler.translate.statements import dialect_of
from tunec.schemas.source import start_of

_SHARED: Final = (*TRL, "hf", "model", "peft", "deepspeed", "accelerate")
"""Kinds of files that mean the same, whichever target writes them."""
_ARGUMENTS: Final = (*TRL, "hf")
"""Kinds of files that hold the Trainer's arguments."""


class CarriedKey(Struct, frozen=True):
    """A key that was read, and its keys in a new file."""

    read: Read
    keys: Mapping[str, Json]
    """The keys; if empty, the new reader does so by default."""
    slots: tuple[str, ...] = ()
    """The slots that these keys express instead of rows."""
    apart: str = ""
    """What the new program does differently; empty: it does the same."""
    texts: Mapping[str, str] = MappingProxyType({})
    """The texts of further files that the keys name."""


def kept_in(
    target: Target, file: File, written: Mapping[str, Json], sources: Sources, dialect: Dialect
) -> Iterator[CarriedKey]:
    """The keys without a slot that a file gets beside those its rows have `written`.

    Keys of the same kind of file stay; those of the Trainer go into every file with its arguments.
    """
    for read in sources.reads:
        keys = _kept(read, target, file, written, dialect, sources)
        if keys is not None:
            is_flag = read.place.document.format == "shell"
            yield CarriedKey(read, _listed(keys, file, dialect) if is_flag else keys)
    for document in sources.run.documents:
        yield from _told(document, target, file, sources, dialect)
        for each in differing(document, target, file, written, sources, dialect):
            yield CarriedKey(each.read, each.keys, apart=each.apart)


def _listed(keys: Mapping[str, Json], file: File, dialect: Dialect) -> Mapping[str, Json]:
    """Flags in a file whose reader requires a list, where a command line has one value."""
    known = schema_of(file, dialect).get("properties", {})
    return {key: [each] if _is_list(known.get(key), each) else each for key, each in keys.items()}


def _is_list(field: Any, value: Any) -> bool:
    """Whether a schema allows lists of a value, and not the value itself."""
    every = (field, *field.get("anyOf", ())) if isinstance(field, Mapping) else ()
    kinds = {str(kind) for each in every for kind in _kinds(each)}
    return isinstance(value, str) and "array" in kinds and "string" not in kinds


def _kinds(field: Mapping[str, Any]) -> Iterable[Any]:
    said = field.get("type", ())
    return (said,) if isinstance(said, str) else said


def _told(
    document: Document, target: Target, file: File, sources: Sources, dialect: Dialect
) -> Iterator[CarriedKey]:
    """Keys that a dialect's program hands on to the program that runs it, in either direction."""
    reads = {each.key: each for each in sources.reads if each.place.document is document}
    is_through = _is_through_trl(document, target)
    for carry in _between(document, target, file, sources, dialect):
        if any(map(sources.is_given, carry.slots)):
            continue
        every = (*carry.keys, *carry.beside)
        there = {key: document.flat[key].value for key in every if key in document.flat}
        try:
            keys = carry.write(there) if not there.keys().isdisjoint(carry.keys) else {}
            if keys and is_through:
                keys = _in_its_words(_beside_rows(keys, carry), target, file, dialect)
        except WRONG_SHAPE:
            continue
        is_told = keys is None or bool(keys)
        if is_told and all(admits(target, file, dialect, key) for key in keys or ()):
            for key in (each for each in carry.keys if each in reads):
                slots = _of_no_rows(carry) if is_through else carry.slots
                texts = carry.texts(there) if keys else {}
                read = _unsaid(document, keys) if carry.is_default and keys else reads[key]
                yield CarriedKey(read, keys or {}, slots, carry.apart(there), texts)


def _unsaid(document: Document, keys: Mapping[str, Json]) -> Read:
    """A key that a document leaves out, by its name in the other program."""
    (name, value), *_ = keys.items()
    return Read(name, Place(document, name, Node(start_of(document.name), value)), "default")


_SETS: Final = "datasets"
"""TRL's data sets. It has no form of records, which dialects need beside their places: between two
dialects rows say them."""
_BY_ROWS: Final = frozenset({"data.train", "data.more", "data.limits"})


def _beside_rows(keys: Mapping[str, Json], carry: Carry) -> Mapping[str, Json]:
    """What a dialect says to TRL beside its data sets."""
    is_of_data = not _BY_ROWS.isdisjoint(carry.slots)
    return {key: each for key, each in keys.items() if not (is_of_data and key == _SETS)}


def _of_no_rows(carry: Carry) -> tuple[str, ...]:
    return tuple(slot for slot in carry.slots if slot not in _BY_ROWS)


def _is_through_trl(document: Document, target: Target) -> bool:
    """Whether one dialect becomes another, by their keys for TRL."""
    own = document.target
    is_apart = own is not None and own.name != target.name
    return is_apart and own is not None and bool(own.run_by) and own.run_by == target.run_by


def _in_its_words(
    keys: Mapping[str, Json], target: Target, file: File, dialect: Dialect
) -> Mapping[str, Json]:
    """TRL's keys as keys of a dialect; empty unless it has equivalents of all."""
    found: dict[str, Json] = {}
    for key, value in keys.items():
        made = next((each.write(keys) for each in file.takes if key in each.keys), None)
        is_share = key == _WARMUP and isinstance(value, float) and value < 1
        if made is None and is_share and knows(target, file, dialect, _SHARE):
            made = {_SHARE: value}
        elif made is None and (_hands_on(target, file, dialect, key) or _is_same_key(file, keys)):
            made = {key: value}
        if not made:
            return {}
        found |= made
    return found


_WARMUP, _SHARE = "warmup_steps", "warmup_ratio"
"""The warmup as transformers 5 has it, which may be a share, and the former key for a share."""


def _is_same_key(file: File, keys: Mapping[str, Json]) -> bool:
    """Whether a dialect's own key for TRL is the same key."""
    own = (each for each in file.carries if {*each.keys} == keys.keys())
    return any(each.write(keys) == keys for each in own)


def _between(
    document: Document, target: Target, file: File, sources: Sources, dialect: Dialect
) -> Iterator[Carry]:
    """The conversions of a document's keys to a file of the other side, dialect or its runner."""
    own, every = document.target, tuple[Carry, ...]()
    if document.file is not None and own is not None and _is_through_trl(document, target):
        every, dialect = document.file.carries, dialect_of(sources.run, own)
    elif kind_of(target, file) not in _ARGUMENTS:
        every = file.takes if document.kind in _ARGUMENTS else ()
    elif document.file is not None and own is not None:
        every, dialect = document.file.carries, dialect_of(sources.run, own)
    yield from (each for each in every if dialect[""] >= Version(each.since))


def _kept(
    read: Read,
    target: Target,
    file: File,
    written: Mapping[str, Json],
    dialect: Dialect,
    sources: Sources,
) -> Mapping[str, Json] | None:
    is_own = _is_same(read, target, file)

    def fits(keys: Mapping[str, Json]) -> bool:
        return all(admits(target, file, dialect, key) for key in keys)

    if read.place.value is None:
        return None
    match read.fate:
        case "left" | "default":
            if _is_handed_on(read, target, file, sources, dialect):
                return {read.key: read.place.value}
            names = (*_renamed(read, target, file, sources), *_names(read, target, file, sources))
            return next(filter(fits, names), None)
        case "filled":
            return {read.key: read.place.value} if _stays_open(read, file, is_own=is_own) else None
        case "follows" | "may follow" if is_own:
            is_decided = read.key in written and read.fate == "follows"
            is_known = knows(target, file, dialect, read.key)
            return {read.key: read.place.value} if is_known and not is_decided else None
        case "meeting" if is_own and read.place.document.kind == "accelerate":
            return {read.key: read.place.value}
    return None


def _stays_open(read: Read, file: File, *, is_own: bool) -> bool:
    """Whether the new trainer also replaces `auto`."""
    own = read.place.document.file
    if own is None or own.name != file.name:
        return False
    return read.key in (file.filled or ()) or (is_own and read.key in (own.filled or ()))


def _names(
    read: Read, target: Target, file: File, sources: Sources
) -> Iterator[Mapping[str, Json]]:
    """The possible keys in a file for a key that was read, the nearest first."""
    kind, value = read.place.document.kind, read.place.value
    if _is_at_home(read, target, file, sources):
        yield {read.key: value}
        for package in PACKAGES.get(kind, ()):
            yield from _moved(MOVED[package], read.key, value)


def _moved(table: Iterable[Moved], key: str, value: Any) -> Iterator[Mapping[str, Json]]:
    for moved in table:
        if moved.old == key and moved.new:
            yield from _forward(moved, value)
        if moved.new == key and moved.back is not None:
            said = moved.back(value)
            yield {} if said is None else {moved.old: said}


def _forward(moved: Moved, value: Any) -> Iterator[Mapping[str, Json]]:
    """The current key with the converted value; none if the value has no equivalent."""
    said = moved.words(value)
    if said is not None:
        yield {moved.new: said}
    elif not value:
        yield {}


def _is_at_home(read: Read, target: Target, file: File, sources: Sources) -> bool:
    """Whether a file's reader takes a key as it was: the same kind of file, or the Trainer."""
    if _is_same(read, target, file):
        return True
    kind, own = kind_of(target, file), read.place.document.kind
    if kind == own and kind in _SHARED:
        return True
    table = read.place.document.target
    heirs = (*_ARGUMENTS, *((own,) if table is not None and table.run_by else ()))
    is_handed = own in heirs and not is_its_own(read) and read.key in trainers_keys(sources)
    return kind in _ARGUMENTS and is_handed


def is_its_own(read: Read) -> bool:
    """Whether a dialect's program gives one of the Trainer's keys another meaning."""
    target, file = read.place.document.target, read.place.document.file
    leaves = file.leaves if file is not None and target is not None and target.run_by else ()
    return any(each.old == read.key for each in leaves)


def _is_handed_on(
    read: Read, target: Target, file: File, sources: Sources, dialect: Dialect
) -> bool:
    """Whether a dialect's program passes an argument on to the Trainer."""
    own = read.place.document.target
    is_of_dialect = own is not None and bool(own.run_by) and not is_its_own(read)
    is_theirs = read.place.document.kind in _ARGUMENTS or is_of_dialect
    is_argument = is_theirs and read.key in trainers_keys(sources)
    return is_argument and _hands_on(target, file, dialect, read.key)


def _renamed(
    read: Read, target: Target, file: File, sources: Sources
) -> Iterator[Mapping[str, Json]]:
    """A key that one dialect passes on to the Trainer, by the other dialect's name for it.

    Without a name, if the other program does so by itself.
    """
    is_through = _is_through_trl(read.place.document, target) and not is_its_own(read)
    if is_through and read.key in trainers_keys(sources):
        for each in (take for take in file.takes if take.keys == (read.key,) and not take.slots):
            made = each.write({read.key: read.place.value})
            if made or made is None:
                yield made or {}


def _hands_on(target: Target, file: File, dialect: Dialect, key: str) -> bool:
    """Whether a dialect's program has one of TRL's keys, with the same meaning."""
    is_other = any(each.old == key for each in file.leaves)
    return bool(target.run_by) and not is_other and knows(target, file, dialect, key)


def _is_same(read: Read, target: Target, file: File) -> bool:
    table, own = read.place.document.target, read.place.document.file
    return (
        table is not None and own is not None and (table.name, own.name) == (target.name, file.name)
    )


def trainers_keys(sources: Sources) -> frozenset[str]:
    """The arguments of transformers' Trainer, which programs based on it pass on unchanged."""
    trainer = sources.run.targets["huggingface"]
    (file,) = (each for each in trainer.files if each.name == "training_args.yaml")
    return known_keys(trainer, file)
