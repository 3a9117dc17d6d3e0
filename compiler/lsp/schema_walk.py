"""What a JSON Schema says of a place in a document: fields, values, and what each means."""

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, Final

from msgspec import Struct

from tunec.schemas.caches import cached
from tunec.schemas.source import Path

Schema = Mapping[str, Any]
_DEEPEST: Final = 12
"""References and choices that are followed at one place."""


class Field(Struct, frozen=True):
    """A key that may stand at a place."""

    name: str
    about: str
    """What it means; empty where the schema does not say."""
    type: str
    default: Any = None
    has_default: bool = False
    is_required: bool = False


@cached(16)
def ours(name: str) -> Schema:
    """The schema of one of our own kinds of file."""
    found: Schema = json.loads(
        (files("tunec.schemas") / "json" / "tunec" / f"{name}.json").read_text("utf-8")
    )
    return found


class Schemas(Struct, frozen=True):
    """What holds at one place: a value there is one of these."""

    root: Schema
    choices: tuple[Schema, ...]

    @classmethod
    def of(cls, root: Schema, path: Path = ()) -> "Schemas":
        """What holds at a path."""
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
        """The keys of a mapping here."""
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
        """The values that are known here, by how JSON writes them."""
        found: dict[str, Any] = {}
        for each in self.choices:
            given = [*each.get("enum", ()), *([each["const"]] if "const" in each else [])]
            if each.get("type") == "boolean":
                given += [True, False]
            given += each.get("examples", ())
            found |= {json.dumps(value): value for value in given}
        return found

    @property
    def is_list(self) -> bool:
        """Whether a list may stand here."""
        return any(each.get("type") == "array" for each in self.choices)


def field_at(root: Schema, path: Path) -> Field | None:
    """The field that a path ends in."""
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
    """A schema with what it refers to and the choices that it gives, each once."""
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
