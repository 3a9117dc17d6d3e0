"""The JSON Schema of Axolotl's YAML, from the pydantic classes that validate it."""

import ast
import importlib
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import torch
from axolotl import integrations
from axolotl.utils.schemas.config import AxolotlInputConfig
from pydantic import AliasChoices, BaseModel
from pydantic.json_schema import GenerateJsonSchema

from tunec.compiler.consumers.json_types import Schema

_PROSE: Final = frozenset({"title", "description", "examples"})
_MAPS: Final = ("properties", "$defs", "definitions")


class _Facts(GenerateJsonSchema):
    """A schema generator in which types that JSON cannot express admit anything."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> Schema:  # noqa: ARG002
        return {}

    def enum_schema(self, schema: Any) -> Schema:
        """Enumeration members by value; a torch dtype by its name, as in the YAML."""
        values = [member.value for member in schema["members"]]
        return {
            "enum": [str(each).removeprefix("torch.") if _odd(each) else each for each in values]
        }


def _odd(value: Any) -> bool:
    return isinstance(value, torch.dtype) or not isinstance(value, str | int | float)


def schema(_: Mapping[str, Any]) -> Schema:
    """The JSON Schema (draft 2020-12) of the file in the installed release.

    `x-plugins` has the keys that each integration adds if `plugins` names it. Axolotl silently
    drops a key that no class has: the classes leave pydantic's `extra` at `ignore`.
    """
    found = _of(AxolotlInputConfig)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"axolotl {version('axolotl')}: config.yaml",
        "x-consumer": f"axolotl=={version('axolotl')}",
        "x-unknown": AxolotlInputConfig.model_config.get("extra") or "ignored",
        "x-plugins": dict(sorted(_plugins())),
        **found,
    }


def _of(model: type[BaseModel]) -> Schema:
    made = model.model_json_schema(schema_generator=_Facts, by_alias=False, mode="validation")
    found: Schema = _without_prose(made)
    for name, field in model.model_fields.items():
        for alias in _aliases(field):
            found["properties"].setdefault(alias, {"$ref": f"#/properties/{name}"})
    return found


def _aliases(field: Any) -> Iterator[str]:
    named = field.validation_alias or field.alias
    choices = named.choices if isinstance(named, AliasChoices) else [named]
    yield from (each for each in choices if isinstance(each, str))


def _without_prose(value: Any, *, is_map: bool = False) -> Any:
    """A schema with keys, types, defaults and bounds, but without help texts."""
    if isinstance(value, Mapping):
        return {
            key: _without_prose(inner, is_map=key in _MAPS and not is_map)
            for key, inner in value.items()
            if is_map or key not in _PROSE
        } | ({"deprecated": True} if not is_map and value.get("deprecated") else {})
    return [_without_prose(each) for each in value] if isinstance(value, list) else value


def _plugins() -> Iterator[tuple[str, Schema]]:
    """The properties of each integration's own classes, by its package's name."""
    folder = Path(integrations.__path__[0])
    for file in sorted(folder.glob("*/args.py")):
        name = file.parent.name
        try:
            yield name, _own(importlib.import_module(f"axolotl.integrations.{name}.args"))
        except Exception:  # noqa: BLE001 - what it needs is not installed; its text says the names
            yield name, {"properties": {key: {} for key in _names(file)}}


def _names(file: Path) -> Iterator[str]:
    """The annotated names in a file's classes, without their types."""
    for kind in ast.walk(ast.parse(file.read_text("utf-8"))):
        for each in kind.body if isinstance(kind, ast.ClassDef) else ():
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                yield each.target.id


def _own(module: Any) -> Schema:
    """The properties of the classes that a module itself defines."""
    properties: Schema = {}
    definitions: Schema = {}
    for kind in vars(module).values():
        is_own = isinstance(kind, type) and kind.__module__ == module.__name__
        if is_own and issubclass(kind, BaseModel):
            told = _of(kind)
            properties |= told.get("properties", {})
            definitions |= told.get("$defs", {})
    return {"properties": properties, **({"$defs": definitions} if definitions else {})}
