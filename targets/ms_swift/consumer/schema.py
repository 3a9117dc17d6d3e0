"""The JSON Schema of ms-swift's file, from the dataclasses that its parser fills."""

import dataclasses
import importlib
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any

from tunec.compiler.consumers.json_types import Schema, annotations_of, json_type, plain
from tunec.targets.ms_swift.consumer.quiet import quietly


def schema(_: Mapping[str, Any]) -> Schema:
    """The JSON Schema (draft 2020-12) of the file of `swift sft` and `swift rlhf`.

    `x-classes` tells which command accepts a key: `SftArguments` both, `RLHFArguments` only the
    second. Keys become flags (cli/main.py `parse_yaml_args`), so that a list may be given by its
    only member, and unknown flags are refused (pipelines/base.py `_parse_args`).
    """
    fields = list(_fields())
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"ms-swift {version('ms-swift')}: swift sft and swift rlhf",
        "x-consumer": f"ms-swift=={version('ms-swift')}",
        "x-beside": [f"transformers=={version('transformers')}", f"trl=={version('trl')}"],
        "x-unknown": "refused",
        "x-classes": {name: kind for name, kind, _, _ in fields},
        "type": "object",
        "properties": {
            **{name: _property(hint, default) for name, _, hint, default in fields},
            "ENV": {"type": "object"},
        },
        "additionalProperties": False,
    }


def _fields() -> Iterator[tuple[str, str, Any, Any]]:
    """The name, first class, type and default of every argument."""
    with quietly():
        arguments: Any = importlib.import_module("swift.arguments")
        kind = arguments.RLHFArguments
        own = {each.name for each in dataclasses.fields(arguments.SftArguments)}
        hints = annotations_of(kind)
    for field in dataclasses.fields(kind):
        if field.init:
            of = "SftArguments" if field.name in own else "RLHFArguments"
            yield field.name, of, hints[field.name], _default(field)


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _property(hint: Any, default: Any) -> Schema:
    found = _or_one(dict(json_type(hint) or {}))
    return found if default is dataclasses.MISSING else {**found, "default": plain(default)}


def _or_one(found: Schema) -> Schema:
    """A list, or its only member, as a flag gives it."""
    parts = found.get("anyOf", [found])
    items = [each["items"] for each in parts if each.get("type") == "array" and "items" in each]
    return {"anyOf": [*parts, *items]} if items else found
