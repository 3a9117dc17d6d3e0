"""read: what a target's files set, by the same rows that write them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from types import NoneType
from typing import Any, Final, Literal, get_args, get_origin

from packaging.version import Version

from tunec.compiler.frontend.nodes import Node, place, plain
from tunec.compiler.ir.ledger import Definition, Rank
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.ir.values import alternatives
from tunec.compiler.target import Dialect, Documents, Entry, File, Found, Json, Target

_AUTO: Final = "auto"
_MISFIT: Final = object()
_POWER: Final = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")
"""`2e-5`, which YAML 1.1 has as text."""
WRONG_SHAPE: Final = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError)
"""What a row's `read` raises for a value of another shape than its key has."""


def read(
    target: Target,
    documents: Documents,
    version: Version,
    software: Mapping[str, str] | None = None,
) -> tuple[Definition, ...]:
    """The definitions that documents give slots, with the consumer's defaults for absent keys.

    `documents` holds the keys found in each of the target's files, by dotted path. A value that its
    slot's type cannot hold defines nothing: the consumer's JSON Schema reports it.
    """
    rows = read_rows(target, documents, target.dialect(version, software))
    return (*(definition for _, definition in rows), *target.together(documents))


def read_rows(
    target: Target, documents: Documents, dialect: Dialect
) -> Iterator[tuple[Entry, Definition]]:
    """What each row says of documents: in which runs that matters is for the row to say."""
    in_code = (file.in_code for file in target.files if file.in_code is not None)
    for file in (*target.files, *in_code):
        if file.name in documents:
            yield from _read_file(file, documents[file.name], dialect, target)


def recognise(target: Target, document: Json) -> File | None:
    """The file of the target that a document is, by its content; None if it is none of them."""
    return next((file for file in target.files if file.recognise(document)), None)


def found_in(document: Node) -> dict[str, Found]:
    """Every key of a document by dotted path, including keys of mappings."""
    return dict(_flat_node(document, ""))


def found_plain(document: Json) -> dict[str, Found]:
    """Every key of plain data by dotted path, without places."""
    return dict(_flat(document, ""))


def _flat_node(node: Node, prefix: str) -> Iterator[tuple[str, Found]]:
    for key, child in (node.fields or {}).items():
        yield prefix + key, Found(plain(child), place(child))
        yield from _flat_node(child, f"{prefix}{key}.")


def _flat(document: Json, prefix: str) -> Iterator[tuple[str, Found]]:
    if isinstance(document, Mapping):
        for key, value in document.items():
            yield f"{prefix}{key}", Found(value)
            yield from _flat(value, f"{prefix}{key}.")


def _read_file(
    file: File, found: Mapping[str, Found], dialect: Dialect, target: Target
) -> Iterator[tuple[Entry, Definition]]:
    for entry in file.entries:
        if entry.holds_in(dialect):
            yield from ((entry, each) for each in _read_row(entry, file, found, dialect, target))


def _read_row(
    entry: Entry, file: File, found: Mapping[str, Found], dialect: Dialect, target: Target
) -> Iterator[Definition]:
    there = {key: found[key] for key in entry.keys if key in found}
    said = {key: each for key, each in there.items() if not _is_auto(file, each.value)}
    if len(said) < len(there) and any(key in (file.filled or ()) for key in there.keys() - said):
        return  # another file says it
    yield from _observed(entry, said, file) if said else _assumed(entry, target, dialect)


def _is_auto(file: File, value: Json) -> bool:
    return file.filled is not None and isinstance(value, str) and value == _AUTO


def _observed(entry: Entry, present: Mapping[str, Found], file: File) -> Iterator[Definition]:
    span = next(iter(present.values())).span
    reason = f"set by {', '.join(present)}"
    said = {key: each.value for key, each in present.items()}
    for slot, value in settle(entry, said, reads_powers=file.reads_powers).items():
        yield Definition(slot, value, Rank.OBSERVED, file.name, reason, span=span)


def _assumed(entry: Entry, target: Target, dialect: Dialect) -> Iterator[Definition]:
    package = entry.package or target.package
    version = dialect[entry.package]
    what = f"{entry.keys[0]} is absent" if entry.keys else "no key overrides it"
    for slot, value in entry.defaults_at(version).items():
        reason = f"{what}: the default of {package} {version}"
        yield Definition(slot, value, Rank.CONSUMER, package, reason)


def settle(
    entry: Entry, found: Mapping[str, Json], *, reads_powers: bool = False
) -> dict[str, Any]:
    """The slot values that a row reads from the keys found, each of its slot's type."""
    try:
        values = entry.read(
            {key: _number(each) for key, each in found.items()} if reads_powers else found
        )
        fitted = {
            slot: _fit(SLOTS[slot].type, value)
            for slot, value in values.items()
            if slot in entry.slots
        }
    except WRONG_SHAPE:
        return {}
    return {slot: value for slot, value in fitted.items() if value is not _MISFIT}


def _number(value: Json) -> Json:
    is_power = isinstance(value, str) and _POWER.fullmatch(value) is not None
    return float(value) if isinstance(value, str) and is_power else value


def fitted(slot: str, value: Any) -> Any:
    """A value converted to its slot's type; ValueError if it cannot be, LookupError: no slot."""
    found = _fit(SLOTS[slot].type, value)
    if found is _MISFIT:
        raise ValueError(f"{slot} cannot be {value!r}")
    return found


def _fit(kind: Any, value: Any) -> Any:
    """The value converted to its slot's type, or a marker if that fails."""
    for each in alternatives(kind):
        fitted = _fit_one(each, value)
        if fitted is not _MISFIT:
            return fitted
    return _MISFIT


def _fit_one(kind: Any, value: Any) -> Any:
    if kind is float:
        return float(value) if _is_number(value) else _MISFIT
    if kind is int:
        return int(value) if _is_number(value) and value == int(value) else _MISFIT
    if kind in (bool, str, NoneType):
        return value if type(value) is kind else _MISFIT
    if get_origin(kind) is Literal:
        return value if isinstance(value, str) and value in get_args(kind) else _MISFIT
    return _fit_tuple(kind, value)


def _fit_tuple(kind: Any, value: Any) -> Any:
    """A tuple type is either `tuple[item, ...]` or a pair of two types."""
    if get_origin(kind) is not tuple or not isinstance(value, tuple | list):
        return _MISFIT
    items = get_args(kind)
    kinds: Iterable[Any] = [items[0]] * len(value) if items[-1] is ... else items
    fitted = tuple(_fit(each, item) for each, item in zip(kinds, value, strict=False))
    whole = len(fitted) == len(value) and _MISFIT not in fitted
    return fitted if whole else _MISFIT


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or isfinite(value)
