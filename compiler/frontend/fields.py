"""What may stand where in a shape: its fields by path, read off the types."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
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
    found = (field_docs(each).get(path[-1]) for each in shapes_at(shape, path[:-1]))
    text = next((each for each in found if each), "").rstrip(".")
    return (text if text[:2].isupper() else text[:1].lower() + text[1:]) or None


@lru_cache(maxsize=64)
def field_docs(shape: type[Shape]) -> Mapping[str, str]:
    """What the text below each field says, on one line, by the names that people write.

    Read from the source when it is asked for: having pydantic do it costs a third of the time that
    building a shape takes.
    """
    docs: dict[str, str] = {}
    for each in reversed(shape.__mro__):
        if issubclass(each, Shape) and each is not Shape:
            docs |= _docs_of(each)
    written = {name: info.alias or name for name, info in shape.model_fields.items()}
    return {written[name]: text for name, text in docs.items() if name in written}


def _docs_of(shape: type[Shape]) -> dict[str, str]:
    import ast
    import inspect
    import textwrap

    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(shape)))
    except OSError:
        return {}
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


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
