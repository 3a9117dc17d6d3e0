"""What may stand where in a shape: its fields by path, read off the types."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, get_args

from pydantic.fields import FieldInfo

from tunec.schemas.shape import Shape
from tunec.schemas.source import Path


def shapes_in(annotation: Any) -> Iterator[type[Shape]]:
    """The shapes that a type speaks of, within unions, tuples and mappings."""
    if isinstance(annotation, type) and issubclass(annotation, Shape):
        yield annotation
        return
    for argument in get_args(annotation):
        yield from shapes_in(argument)


def named_fields(shape: type[Shape]) -> dict[str, FieldInfo]:
    """The fields of a shape by the names that people write."""
    return {info.alias or name: info for name, info in shape.model_fields.items()}


def shapes_at(shape: type[Shape], path: Path) -> tuple[type[Shape], ...]:
    """The shapes that may stand at a path; empty where no shape can."""
    found: tuple[type[Shape], ...] = (shape,)
    for part in path:
        if isinstance(part, str):
            infos = [named_fields(each).get(part) for each in found]
            found = tuple(s for info in infos if info for s in shapes_in(info.annotation))
    return found


def fields_at(shape: type[Shape], path: Path) -> dict[str, FieldInfo]:
    """Every field that a mapping at a path may have."""
    return {
        name: info for each in shapes_at(shape, path) for name, info in named_fields(each).items()
    }


def description(shape: type[Shape], path: Path) -> str | None:
    """What a field says of itself, as the text of a note."""
    if not path or not isinstance(path[-1], str):
        return None
    info = fields_at(shape, path[:-1]).get(path[-1])
    if info is None or not info.description:
        return None
    text = " ".join(info.description.split()).rstrip(".")
    return text if text[:2].isupper() else text[:1].lower() + text[1:]


@lru_cache(maxsize=8)
def places(shape: type[Shape]) -> dict[str, tuple[Path, ...]]:
    """Every path of a field in a tree of shapes, by the field's name; lists are left out."""
    found: dict[str, list[Path]] = {}
    for path in _paths(shape, ()):
        found.setdefault(str(path[-1]), []).append(path)
    return {name: tuple(paths) for name, paths in found.items()}


def _paths(shape: type[Shape], base: Path) -> Iterator[Path]:
    for name, info in named_fields(shape).items():
        path = (*base, name)
        yield path
        if "tuple" not in str(info.annotation):
            for inner in shapes_in(info.annotation):
                yield from _paths(inner, path)
