"""Lookup in a JSON Schema by the place in a document: fields, values, and their meaning."""

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, Final

from msgspec import Struct

from tunec.schemas.caches import cached
from tunec.schemas.source import Path

Schema = Mapping[str, Any]
_DEEPEST: Final = 12
"""How many levels of references and choices are followed at one place."""


class Field(Struct, frozen=True):
    """A key that is allowed at a place."""

    name: str
    about: str
    """The key's meaning; empty if the schema does not describe it."""
    type: str
    default: Any = None
    has_default: bool = False
    is_required: bool = False


@cached(16)
def ours(name: str) -> Schema:
    """The schema of one of tunec's own kinds of files."""
    found: Schema = json.loads(
        (files("tunec.schemas") / "json" / "tunec" / f"{name}.json").read_text("utf-8")
    )
    return found


class Schemas(Struct, frozen=True):
    """The schemas at one place, of which a value matches one."""

    root: Schema
    choices: tuple[Schema, ...]

    @classmethod
    def of(cls, root: Schema, path: Path = ()) -> "Schemas":
        """The schemas at a path."""
        found = cls(root, tuple(_opened(root, root)))
        for part in path:
            found = cls(root, tuple(found._below(part)))
        return found

    def _below(self, part: str | int) -> Iterator[Schema]:
        for each in self.choices:
            inner = _inner(each, part)
            if inner is not None:
                yield from _opened(inner, self.root)

    def fields(self) -> dict[str, Field]:
        """The keys that a mapping at this place may have."""
        found: dict[str, Field] = {}
        for each in self.choices:
            required = each.get("required", ())
            for name, inner in each.get("properties", {}).items():
                if name not in found and isinstance(inner, Mapping):
                    found[name] = self._field(name, inner, is_required=name in required)
        return found

    def _field(self, name: str, inner: Schema, *, is_required: bool) -> Field:
        choices = tuple(_opened(inner, self.root))
        about = inner.get("description") or next(
            (each["description"] for each in choices if each.get("description")), ""
        )
        kinds = dict.fromkeys(kind for each in choices for kind in _kinds(each))
        has_default = "default" in inner
        said = " or ".join(kinds)
        return Field(name, about, said, inner.get("default"), has_default, is_required)

    def values(self) -> dict[str, Any]:
        """The known values at this place, by their JSON text."""
        found: dict[str, Any] = {}
        for each in self.choices:
            given = [*each.get("enum", ()), *([each["const"]] if "const" in each else [])]
            if each.get("type") == "boolean":
                given += [True, False]
            given += each.get("examples", ())
            found |= {json.dumps(value): value for value in given}
        return found


def field_at(root: Schema, path: Path) -> Field | None:
    """The field at the end of a path."""
    if not path or not isinstance(path[-1], str):
        return None
    return Schemas.of(root, path[:-1]).fields().get(path[-1])


def _inner(schema: Schema, part: str | int) -> Schema | None:
    if isinstance(part, int):
        items = schema.get("items")
        return items if isinstance(items, Mapping) else None
    found = schema.get("properties", {}).get(part)
    more = schema.get("additionalProperties")
    if found is None and isinstance(more, Mapping):
        found = more
    return found if isinstance(found, Mapping) else None


def _opened(schema: Schema, root: Schema, depth: int = 0) -> Iterator[Schema]:
    """A schema, and those that it refers to or offers as choices."""
    if depth > _DEEPEST:
        return
    yield schema
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        named = root.get("$defs", {}).get(reference.removeprefix("#/$defs/"))
        if named is not None:
            yield from _opened(named, root, depth + 1)
    for word in ("anyOf", "oneOf", "allOf"):
        for each in schema.get(word, ()):
            yield from _opened(each, root, depth + 1)
    for word in ("else", "then"):
        if word in schema:
            yield from _opened(schema[word], root, depth + 1)


def _kinds(schema: Schema) -> Iterator[str]:
    kind = schema.get("type", ())
    for each in (kind,) if isinstance(kind, str) else kind:
        if each != "null":
            yield "list" if each == "array" else "mapping" if each == "object" else each
