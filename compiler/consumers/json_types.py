"""Python annotations as JSON Schema, and Python values as JSON, for scripts that run in consumers.

Only the standard library is imported here, since tunec's dependencies may be missing there.
"""

import dataclasses
import enum
import inspect
import pathlib
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, Union, get_args, get_origin

Schema = dict[str, Any]
Special = Callable[[Any], Schema | None]
"""A script's own extension: the schema of an annotation; None for annotations it does not
handle."""

_PLAIN: Final[Mapping[Any, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    pathlib.Path: "string",
    list: "array",
    tuple: "array",
    dict: "object",
}
_NULL: Final[Schema] = {"type": "null"}


def annotations_of(kind: Any) -> dict[str, Any]:
    """The annotations of a class by field, each union in the order in which it is written.

    `typing` caches unions: after `Union[str, list]` it would return the same for `Union[list,
    str]`.
    """
    for forget in getattr(typing, "_cleanups", ()):
        forget()
    return typing.get_type_hints(kind)


def nothing_special(_: Any) -> Schema | None:
    """The extension of a script that handles no annotations."""
    return None


def json_type(annotation: Any, special: Special = nothing_special) -> Schema | None:
    """The schema of the JSON values that an annotation admits; None if it admits none."""
    if annotation is Any:
        return {}
    if annotation in (None, type(None)):
        return dict(_NULL)
    if annotation in _PLAIN:
        return {"type": _PLAIN[annotation]}
    if is_enumeration(annotation):
        return {"enum": sorted({plain(member) for member in annotation}, key=str)}
    return special(annotation) or _generic(get_origin(annotation), get_args(annotation), special)


def is_enumeration(annotation: Any) -> bool:
    """Whether an annotation is an enumeration class."""
    return inspect.isclass(annotation) and issubclass(annotation, enum.Enum)


def _generic(origin: Any, inner: tuple[Any, ...], special: Special) -> Schema | None:
    if origin is Literal:
        return {"enum": sorted(inner, key=str)}
    if origin in (Union, types.UnionType):
        return _union(inner, special)
    if origin in (list, tuple, set):
        items = json_type(inner[0], special) if inner else None
        return {"type": "array", "items": items} if items else {"type": "array"}
    return {"type": "object"} if origin is dict else None


def _union(inner: tuple[Any, ...], special: Special) -> Schema | None:
    """A choice of schemas; `str` beside an enumeration is dropped, as it only spells members."""
    if any(is_enumeration(each) for each in inner):
        inner = tuple(each for each in inner if each is not str)
    choices = [
        schema for schema in (json_type(each, special) for each in inner) if schema is not None
    ]
    return any_of(choices) if any(choice != _NULL for choice in choices) else None


def any_of(choices: Iterable[Schema]) -> Schema:
    """One schema for several, without `anyOf` if plain types suffice."""
    choices = list(choices)
    if len(choices) == 1:
        return choices[0]
    if all(set(choice) == {"type"} for choice in choices):
        kinds = sorted({choice["type"] for choice in choices})
        return {"type": kinds[0] if len(kinds) == 1 else kinds}
    return {"anyOf": choices}


def plain(value: Any) -> Any:
    """A value as JSON: enumerations by value, torch dtypes by name, sets in order."""
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in dict(value).items()}
    if isinstance(value, set | frozenset):
        return sorted((plain(each) for each in value), key=str)
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return str(value).removeprefix("torch.")
