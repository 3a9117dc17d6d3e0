"""The JSON Schema of Unsloth's YAML, from the pydantic classes that validate it."""

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any, Final

from pydantic import ValidationError
from unsloth_cli.config import Config

from tunec.compiler.consumers.json_types import Schema, any_of

_UNCHECKED: Final = ("title", "description", "format")
_SPELLINGS: Final = (True, False, "1", "0", "yes", "no", "on", "off", "true", "false", "")
"""Other spellings that users write for a choice."""


def schema(_: Mapping[str, Any]) -> Schema:
    """The JSON Schema (draft 2020-12) of `unsloth train --config`'s file, in this release.

    Its sections are inlined. `x-unknown` tells how unknown keys are treated, `x-any-case` that the
    case of a choice is ignored.
    """
    found = Config.model_json_schema(mode="validation")
    sections = found.get("$defs", {})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"unsloth {version('unsloth')}: unsloth train",
        "x-consumer": f"unsloth=={version('unsloth')}",
        "type": "object",
        "properties": {
            name: _section(name, sections[each["$ref"].rpartition("/")[2]])
            if "$ref" in each
            else _plain(each)
            for name, each in found["properties"].items()
        },
        **_closed(),
    }


def _closed() -> Schema:
    refuses = Config.model_config.get("extra") == "forbid"
    return {"x-unknown": "refused" if refuses else "ignored", "additionalProperties": False}


def _section(name: str, found: Mapping[str, Any]) -> Schema:
    properties = {key: _field(name, key, each) for key, each in found["properties"].items()}
    return {"type": "object", "properties": properties, **_closed()}


def _field(section: str, key: str, found: Mapping[str, Any]) -> Schema:
    """A key, with each spelling of its choices that the class accepts."""
    made = _plain(found)
    if "enum" not in made:
        return made
    words = dict.fromkeys((*made["enum"], *_taken(section, key, _SPELLINGS)))
    upper = [word.upper() for word in made["enum"]]
    case = {"x-any-case": True} if [*_taken(section, key, upper)] == upper else {}
    return {"enum": list(words), **case, "default": made["default"]}


def _taken(section: str, key: str, spellings: Any) -> Iterator[Any]:
    for each in spellings:
        try:
            Config.model_validate({section: {key: each}})
        except ValidationError:
            continue
        yield each


def _plain(found: Mapping[str, Any]) -> Schema:
    """Types and defaults, without keywords that refuse nothing."""
    kept = {key: each for key, each in found.items() if key not in (*_UNCHECKED, "anyOf")}
    return {**any_of(found["anyOf"]), **kept} if "anyOf" in found else kept
