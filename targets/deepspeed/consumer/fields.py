"""Pydantic models of version 1 or 2 as JSON Schema and as JSON values, field by field.

The models' own `model_json_schema` cannot be used: it fails on the lambdas that DeepSpeed keeps in
`json_schema_extra` (`new_param_fn`) and on `torch.dtype`.
"""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pydantic
import pydantic.v1

from tunec.compiler.consumers import json_types
from tunec.compiler.consumers.json_types import Schema

_BOUNDS: Final = {
    "gt": "exclusiveMinimum",
    "ge": "minimum",
    "lt": "exclusiveMaximum",
    "le": "maximum",
}


@dataclass(frozen=True, slots=True)
class Field:
    """A field with the attributes that both generations of pydantic share."""

    name: str
    alias: str
    annotation: Any
    default: Any
    bounds: Mapping[str, Any]
    is_required: bool
    is_deprecated: bool


def is_model(kind: Any) -> bool:
    """Whether an object is a pydantic model class of either generation."""
    return inspect.isclass(kind) and issubclass(kind, pydantic.BaseModel | pydantic.v1.BaseModel)


def fields(kind: Any) -> Iterator[Field]:
    """The fields of a model class, in order, without fields that JSON cannot express."""
    hints = json_types.annotations_of(kind)
    read = _old if issubclass(kind, pydantic.v1.BaseModel) else _new
    for field in read(kind, hints):
        if json_type(field.annotation) is not None:
            yield field


def _old(kind: Any, hints: Mapping[str, Any]) -> Iterator[Field]:
    for name, held in kind.__fields__.items():
        info = held.field_info
        found = {word: getattr(info, word) for word in _BOUNDS}
        yield Field(
            name=name,
            alias=held.alias,
            annotation=_nullable(hints.get(name, held.outer_type_), held),
            default=held.get_default(),
            bounds={word: limit for word, limit in found.items() if limit is not None},
            is_required=bool(held.required),
            is_deprecated=bool(info.extra.get("deprecated")),
        )


def _nullable(annotation: Any, held: Any) -> Any:
    """The annotation; the old pydantic also accepts null for a field whose default is None."""
    return annotation | None if held.allow_none and annotation is not Any else annotation


def _new(kind: Any, hints: Mapping[str, Any]) -> Iterator[Field]:
    for name, info in kind.model_fields.items():
        limits = info.metadata
        yield Field(
            name=name,
            alias=info.alias or name,
            annotation=hints.get(name, info.annotation),
            default=None if info.is_required() else info.get_default(call_default_factory=True),
            bounds={w: getattr(rule, w) for rule in limits for w in _BOUNDS if hasattr(rule, w)},
            is_required=info.is_required(),
            is_deprecated=bool((info.json_schema_extra or {}).get("deprecated")),
        )


def json_type(annotation: Any) -> Schema | None:
    """The schema of the JSON values that an annotation admits, models among them."""
    return json_types.json_type(annotation, _model)


def _model(annotation: Any) -> Schema | None:
    return model_schema(annotation) if is_model(annotation) else None


def model_schema(kind: Any) -> Schema:
    """The schema of a model.

    A field with an alias is also accepted under its own name (`populate_by_name` in
    `DeepSpeedConfigModel`).
    """
    properties: Schema = {}
    for field in fields(kind):
        properties[field.alias] = _property(field)
        if field.alias != field.name:
            properties[field.name] = {**properties[field.alias], "x-alias-of": field.alias}
    schema: Schema = {
        "type": "object",
        "properties": properties,
        "additionalProperties": not _forbids(kind),
    }
    required = [field.alias for field in fields(kind) if field.is_required]
    return {**schema, "required": required} if required else schema


def _forbids(kind: Any) -> bool:
    if issubclass(kind, pydantic.v1.BaseModel):
        return str(getattr(kind.__config__, "extra", "")).endswith("forbid")
    return bool(kind.model_config.get("extra") == "forbid")


def _property(field: Field) -> Schema:
    schema = dict(json_type(field.annotation) or {})
    schema |= {_BOUNDS[word]: plain(limit) for word, limit in field.bounds.items()}
    if not field.is_required:
        schema["default"] = plain(field.default)
    if field.is_deprecated:
        schema["deprecated"] = True
    return schema


def plain(value: Any) -> Any:
    """A value as JSON; a model becomes an object whose keys are the fields' aliases."""
    if is_model(type(value)):
        held = fields(type(value))
        return {field.alias: plain(getattr(value, field.name, None)) for field in held}
    return json_types.plain(value)
