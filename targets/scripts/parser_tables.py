"""The flags of several scripts' parsers, as one table."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

_TYPES: Final = {
    "int": "integer",
    "float": "number",
    "int_or_float": "number",
    "switch": "boolean",
    "str": "string",
}


def table_of(package: str, release: str, found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The flags of each script, with those that a script lacks under `x-lacks`."""
    every = sorted({flag for each in found.values() for flag in each})
    return {
        "$comment": "setup_parser of each script that trains",
        "x-consumer": f"{package}=={release}",
        "properties": {
            flag: _property([e[flag] for e in found.values() if flag in e]) for flag in every
        },
        "x-lacks": {
            stem: [flag for flag in every if flag not in each] for stem, each in found.items()
        },
    }


def _property(told: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One flag with the properties that all scripts with it share."""
    first = told[0]
    kind = _TYPES[first["type"]]
    found: dict[str, Any] = {"type": kind}
    if first.get("many"):
        found = {"type": "array", "items": found}
    words = [each.get("choices") for each in told]
    if all(words):
        found["enum"] = list(dict.fromkeys(word for each in words for word in each or ()))
    defaults = [each.get("default") for each in told]
    if defaults[0] is not None and all(each == defaults[0] for each in defaults):
        found["default"] = defaults[0]
    if all(each.get("required") for each in told):
        found["x-required"] = True
    return found
