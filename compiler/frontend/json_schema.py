"""JSON Schemas of what tunec reads, for editors and validators, generated from the types."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from pydantic import TypeAdapter

from tunec.compiler.frontend.fields import field_docs, shapes_in
from tunec.compiler.ir.slots import SLOTS, Slot
from tunec.schemas.choice import Choice
from tunec.schemas.fleet import Fleet
from tunec.schemas.hardware.profile import Cluster, Device
from tunec.schemas.lint_settings import LintSettings
from tunec.schemas.models.card import ModelCard
from tunec.schemas.policy import Policy
from tunec.schemas.prices.price_list import PriceList
from tunec.schemas.shape import Shape
from tunec.schemas.spec import Pinned, Spec
from tunec.schemas.units import Bytes, Count, Share

Json = dict[str, Any]

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_REFERENCE: Final = "#/$defs/Reference"
_PINS: Final = "#/$defs/Pins"
_PINNED: Final = "#/$defs/Pinned"
_WHOLE: Final = frozenset((_REFERENCE, _PINS, _PINNED))
"""Definitions that are valid for a spec and for a part of one."""
_REFERENCE_SCHEMA: Final[Mapping[str, Any]] = {
    "description": "The value of another key of the spec: `${path.to.key}`.",
    "type": "string",
    "pattern": r"\$\{[^}]+\}",
}
_EXTENDS: Final[Mapping[str, Any]] = {
    "description": "Files whose values hold where this spec says nothing, the last one strongest; "
    "relative to this file, inside the project.",
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
}


def spec_schema() -> Json:
    """The schema of a spec file: every field, and every slot that can be pinned.

    `tunec schema` adds the names of models, hardware and targets, which are not part of it. A spec
    that extends another may leave out anything, so nothing is required there.
    """
    schema = _of(Spec, "A spec of tunec: one run, described by its intent.")
    definitions: Json = schema.pop("$defs")
    definitions["Spec"] = _spec(schema)
    definitions = {name: _with_references(each) for name, each in definitions.items()}
    definitions |= {f"Part{name}": _partial(each) for name, each in definitions.items()}
    definitions |= {
        "Pins": _pins(),
        "Pinned": _tidied(Pinned.model_json_schema()),
        "Reference": dict(_REFERENCE_SCHEMA),
    }
    return {
        "$schema": _DIALECT,
        "title": schema["title"],
        "description": schema["description"],
        "type": "object",
        "if": {"required": ["extends"]},
        "then": {"$ref": "#/$defs/PartSpec"},
        "else": {"$ref": "#/$defs/Spec"},
        "$defs": dict(sorted(definitions.items())),
    }


def _spec(schema: Json) -> Json:
    pin = {"description": schema["properties"]["pin"]["description"], "$ref": _PINS}
    properties = {**schema["properties"], "extends": dict(_EXTENDS), "pin": pin}
    kept = {key: value for key, value in schema.items() if key != "$schema"}
    return {**kept, "properties": properties}


def _of(shape: type[Shape], says: str) -> Json:
    schema: Json = _tidied(shape.model_json_schema(by_alias=True, mode="validation"))
    schema = _described(schema, shape)
    parts = {each.__name__: each for each in _parts(shape)}
    definitions = {
        name: _described(each, parts[name]) if name in parts else each
        for name, each in schema.get("$defs", {}).items()
    }
    known = {"$defs": definitions} if definitions else {}
    return {"$schema": _DIALECT, **schema, **known, "title": shape.__name__, "description": says}


def _parts(shape: type[Shape]) -> Iterator[type[Shape]]:
    """The shapes that a shape contains, at any depth."""
    for info in shape.model_fields.values():
        for each in shapes_in(info.annotation):
            yield each
            yield from _parts(each)


def _described(schema: Json, shape: type[Shape]) -> Json:
    """The schema with each field's description."""
    docs = field_docs(shape)
    properties = {
        name: ({"description": docs[name]} if name in docs else {})
        | {key: value for key, value in each.items() if key != "description"}
        for name, each in schema["properties"].items()
    }
    return {**schema, "properties": properties}


def _tidied(value: Any) -> Any:
    """The schema without pydantic's generated titles, and with one-line texts."""
    if isinstance(value, list):
        return [_tidied(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {key: _tidied(each) for key, each in value.items() if not _is_made_title(key, each)}
    if isinstance(kept.get("description"), str):
        kept["description"] = " ".join(kept["description"].split())
    return kept


def _is_made_title(key: str, value: Any) -> bool:
    return key == "title" and isinstance(value, str)


# ── pins ─────────────────────────────────────────────────────────────────────────────────────────


def _pins() -> Json:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {path: _pin(slot) for path, slot in SLOTS.items()},
    }


def _pin(slot: Slot) -> Json:
    unit = f" ({slot.unit})" if slot.unit else ""
    branches = _slot_schema(slot)
    others = [{"$ref": _PINNED}, {"$ref": _REFERENCE}]
    return {"description": f"{slot.doc}{unit}", "anyOf": [*branches, *others]}


def _slot_schema(slot: Slot) -> list[Json]:
    """The types of a slot; amounts and counts may also be written as text with a unit."""
    schema: Json = _tidied(TypeAdapter(slot.type).json_schema())
    branches = schema.get("anyOf", [schema])
    text = _text_form(slot, {each.get("type") for each in branches})
    return [*branches, text] if text is not None else branches


def _text_form(slot: Slot, types: set[str | None]) -> Json | None:
    if "string" in types:
        return None
    quantity: Any = None
    if "integer" in types:
        quantity = Bytes if slot.unit == "bytes" else Count
    elif "number" in types:
        quantity = Share
    if quantity is None:
        return None
    found: Json = TypeAdapter(quantity).json_schema()["anyOf"][1]
    return found


# ── references and parts ─────────────────────────────────────────────────────────────────────────


def _with_references(definition: Json) -> Json:
    """Allow `${...}` as the value of every property."""
    properties = definition.get("properties", {})
    opened = {name: _with_reference(schema) for name, schema in properties.items()}
    return {**definition, "properties": opened} if opened else definition


def _with_reference(schema: Json) -> Json:
    if schema.get("type") == "string" and "pattern" not in schema:
        return schema
    said: Json = {
        key: schema[key] for key in ("description", "default", "examples") if key in schema
    }
    typed = {key: value for key, value in schema.items() if key not in said}
    branches = typed["anyOf"] if typed.keys() == {"anyOf"} else [typed]
    return {**said, "anyOf": [*branches, {"$ref": _REFERENCE}]}


def _partial(definition: Json) -> Json:
    """The definition with nothing required, in all of its parts."""
    changed: Json = _renamed(definition)
    changed.pop("required", None)
    changed.pop("minProperties", None)
    return changed


def _renamed(value: Any) -> Any:
    if isinstance(value, list):
        return [_renamed(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {key: _renamed_reference(key, each) for key, each in value.items()}


def _renamed_reference(key: str, value: Any) -> Any:
    if key == "$ref" and value not in _WHOLE:
        return str(value).replace("#/$defs/", "#/$defs/Part")
    return _renamed(value)


# ── files ────────────────────────────────────────────────────────────────────────────────────────

SCHEMAS: Final[Mapping[str, Callable[[], Json]]] = {
    "spec": spec_schema,
    "cluster": lambda: _of(Cluster, "A cluster: what a run of tunec may use."),
    "device": lambda: _of(Device, "A device of tunec's catalogue: one accelerator model."),
    "fleet": lambda: _of(Fleet, "A fleet: which specs are compiled for which clusters."),
    "policy": lambda: _of(Policy, "A policy: a team's own rules about plans."),
    "lint": lambda: _of(LintSettings, "Settings of `tunec lint`: tunec.toml."),
    "model-card": lambda: _of(ModelCard, "A model of tunec's catalogue."),
    "choice": lambda: _of(Choice, "What `tunec choose --format json` prints."),
    "prices": lambda: _of(PriceList, "A list of prices: what one node costs an hour, by region."),
}
"""The function that makes each file of `schemas/json/tunec/`, by the file's name."""


def schema_text(name: str) -> str:
    """The text of one schema file."""
    return json.dumps(SCHEMAS[name](), indent=2, ensure_ascii=False) + "\n"
