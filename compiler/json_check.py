"""Checks quickly, without an import, whether a document matches a JSON Schema (2020-12).

It knows the keywords that the schemas in `schemas/json` use, and raises an exception for any other.
Faults are described by the `jsonschema` library, which is only used for documents that are refused
here; `tests/driver/test_json_check.py` checks that both give the same verdict.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from tunec.schemas.caches import ByIdentity, cached

Json = Any
Schema = Mapping[str, Any] | bool


class UnknownKeyword(LookupError):
    """A schema uses a keyword that this module does not know."""


def is_valid(document: Json, schema: Schema) -> bool:
    """Whether a document matches a schema whose references all point into itself.

    Raises UnknownKeyword for a keyword that is neither known nor an annotation.
    """
    return _holds(schema, document, schema)


def _holds(schema: Schema, value: Json, root: Schema) -> bool:
    if isinstance(schema, bool):
        return schema
    for rule, said in _KNOWN.of(schema):  # noqa: SIM110  a generator takes twice as long
        if not rule(schema, said, value, root):
            return False
    return True


def _rules(schema: Mapping[str, Any]) -> "tuple[tuple[_Rule, Any], ...]":
    """The rules of a schema's keywords, each with the keyword's value."""
    return tuple(
        (_rule(keyword), said)
        for keyword, said in schema.items()
        if keyword not in _ANNOTATIONS and not keyword.startswith("x-")
    )


_Rule = Callable[[Mapping[str, Any], Any, Json, Schema], bool]
"""Whether a value meets one keyword: (surrounding schema, keyword's value, value, root schema)."""


_KNOWN: Final = ByIdentity("compiler.json_check.rules", 1 << 16, _rules, lasting=True)


def _rule(keyword: str) -> _Rule:
    if keyword not in _RULES:
        raise UnknownKeyword(keyword)
    return _RULES[keyword]


# ── values ───────────────────────────────────────────────────────────────────────────────────────


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: Json) -> bool:
    """A number without a fraction, including `1.0` (2020-12, 6.1.1)."""
    return _is_number(value) and (isinstance(value, int) or value.is_integer())


_TYPES: Final[Mapping[str, Callable[[Json], bool]]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "number": _is_number,
    "integer": _is_integer,
}


def _is_of_type(kinds: str | list[str], value: Json) -> bool:
    named = [kinds] if isinstance(kinds, str) else kinds
    return any(_TYPES[kind](value) for kind in named)


def _equal(one: Json, other: Json) -> bool:
    """JSON equality: `1` equals `1.0`, but `true` is not a number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    return bool(one == other)


@cached(256)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


# ── keywords ─────────────────────────────────────────────────────────────────────────────────────


def _reference(_: Mapping[str, Any], said: str, value: Json, root: Schema) -> bool:
    start, *parts = said.split("/")
    if start != "#":
        raise UnknownKeyword(said)
    found: Any = root
    for part in parts:
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, Mapping) or key not in found:
            raise UnknownKeyword(said)
        found = found[key]
    return _holds(found, value, root)


def _condition(around: Mapping[str, Any], said: Schema, value: Json, root: Schema) -> bool:
    branch = "then" if _holds(said, value, root) else "else"
    return _holds(around.get(branch, True), value, root)


def _properties(
    _: Mapping[str, Any], said: Mapping[str, Schema], value: Json, root: Schema
) -> bool:
    if not isinstance(value, dict):
        return True
    return all(_holds(said[name], child, root) for name, child in value.items() if name in said)


def _others(around: Mapping[str, Any], said: Schema, value: Json, root: Schema) -> bool:
    """`additionalProperties`: every property that `properties` does not name."""
    if not isinstance(value, dict):
        return True
    named = around.get("properties", {})
    return all(_holds(said, child, root) for name, child in value.items() if name not in named)


def _items(around: Mapping[str, Any], said: Schema, value: Json, root: Schema) -> bool:
    """`items`: every item after those of `prefixItems`."""
    if not isinstance(value, list):
        return True
    return all(_holds(said, child, root) for child in value[len(around.get("prefixItems", ())) :])


def _first_items(_: Mapping[str, Any], said: list[Schema], value: Json, root: Schema) -> bool:
    if not isinstance(value, list):
        return True
    return all(_holds(each, child, root) for each, child in zip(said, value, strict=False))


def _of(kind: Callable[[Json], bool], meets: Callable[[Json, Any], bool]) -> _Rule:
    """A rule for values of one kind; values of other kinds always pass."""
    return lambda _around, said, value, _root: not kind(value) or meets(value, said)


_text, _list, _mapping = _TYPES["string"], _TYPES["array"], _TYPES["object"]

_RULES: Final[Mapping[str, _Rule]] = {
    "$ref": _reference,
    "type": lambda _around, said, value, _root: _is_of_type(said, value),
    "enum": lambda _around, said, value, _root: any(_equal(each, value) for each in said),
    "const": lambda _around, said, value, _root: _equal(said, value),
    "allOf": lambda _, said, value, root: all(_holds(each, value, root) for each in said),
    "anyOf": lambda _, said, value, root: any(_holds(each, value, root) for each in said),
    "not": lambda _, said, value, root: not _holds(said, value, root),
    "if": _condition,
    "then": lambda _around, _said, _value, _root: True,
    "else": lambda _around, _said, _value, _root: True,
    "properties": _properties,
    "additionalProperties": _others,
    "propertyNames": lambda _, said, value, root: (
        not isinstance(value, dict) or all(_holds(said, name, root) for name in value)
    ),
    "required": _of(_mapping, lambda value, said: all(name in value for name in said)),
    "minProperties": _of(_mapping, lambda value, said: len(value) >= said),
    "maxProperties": _of(_mapping, lambda value, said: len(value) <= said),
    "items": _items,
    "prefixItems": _first_items,
    "minItems": _of(_list, lambda value, said: len(value) >= said),
    "maxItems": _of(_list, lambda value, said: len(value) <= said),
    "pattern": _of(_text, lambda value, said: _pattern(said).search(value) is not None),
    "minLength": _of(_text, lambda value, said: len(value) >= said),
    "maxLength": _of(_text, lambda value, said: len(value) <= said),
    "minimum": _of(_is_number, lambda value, said: not value < said),
    "maximum": _of(_is_number, lambda value, said: not value > said),
    "exclusiveMinimum": _of(_is_number, lambda value, said: not value <= said),
    "exclusiveMaximum": _of(_is_number, lambda value, said: not value >= said),
}
"""`then` and `else` are handled by the rule of `if`."""

_ANNOTATIONS: Final = frozenset(
    {
        *("$schema", "$defs", "title", "description", "default", "examples", "deprecated", "help"),
        "format",
    }
)
"""Keywords that forbid nothing, like all that begin with `x-`; `help` is Axolotl's own. `format` is
one too, unless a format checker is given (JSON Schema 2020-12, Validation 7.2.1)."""

KEYWORDS: Final = _ANNOTATIONS.union(_RULES)
"""All keywords that are known, besides those that begin with `x-`."""
