"""The text of a spec: short values on one line, comments beside them, fields to fill in."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, get_args

import yaml

from tunec.compiler.frontend.yaml_scalars import STR, resolve
from tunec.schemas.shape import Shape
from tunec.schemas.source import Path
from tunec.schemas.spec import Spec

_WIDTH: Final = 88
_INDENT: Final = "  "
_BLOCKS: Final = (("pin",),)
"""Fields with a line for each entry."""


def spec_text(
    data: Mapping[str, Any], comments: Mapping[Path, str], empty: Collection[Path]
) -> str:
    """A spec as YAML in the order of its fields.

    `comments` stand beside the field of a path, `empty` are the fields that must be filled in.
    """
    return "".join(
        line
        for key, value in _ordered(data, Spec).items()
        for line in _lines(value, (key,), comments, empty)
    )


def _lines(
    value: Any, path: Path, comments: Mapping[Path, str], empty: Collection[Path]
) -> Iterator[str]:
    key, margin = path[-1], _INDENT * (len(path) - 1)
    comment = f"  # {comments[path]}" if path in comments else ""
    if path in empty:
        yield f"{margin}{_flow(key)}:{comment}\n"
        return
    line = margin + _flow({key: value})[1:-1]
    is_plain = not isinstance(value, Mapping) or not value
    if is_plain or (len(line) <= _WIDTH and not _is_block(path, comments)):
        yield f"{line}{comment}\n"
        return
    yield f"{margin}{_flow(key)}:{comment}\n"
    for name, inner in value.items():
        yield from _lines(inner, (*path, name), comments, empty)


def _is_block(path: Path, comments: Mapping[Path, str]) -> bool:
    """Whether a mapping has a line for each entry: always, or if an entry has a comment."""
    return path in _BLOCKS or any(each[:-1] == path for each in comments)


def _flow(value: Any) -> str:
    text: str = yaml.dump(
        value,
        Dumper=_Dumper,
        default_flow_style=True,
        sort_keys=False,
        allow_unicode=True,
        width=2**31 - 1,
    )
    return text.removesuffix("\n").removesuffix("\n...")


class _Dumper(yaml.SafeDumper):
    """Quotes also what YAML 1.1 takes for text and a spec's reader does not: `1e-4` is a number."""


def _quoted(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    is_text = resolve(text, core_schema=True) == STR
    return dumper.represent_scalar(STR, text, style=None if is_text else "'")


_Dumper.add_representer(str, _quoted)


# ── the order of fields ──────────────────────────────────────────────────────────────────────────


def _ordered(value: Any, shape: type[Shape] | None) -> Any:
    """A mapping in the order of its shape's fields, also within its values."""
    if not isinstance(value, Mapping) or shape is None:
        return value
    found: dict[str, Any] = {}
    for name, field in shape.model_fields.items():
        key = field.alias or name
        if key in value:
            found[key] = _ordered(value[key], _shape_of(field.annotation, value[key]))
    return {**found, **{key: inner for key, inner in value.items() if key not in found}}


def _shape_of(annotation: Any, value: Any) -> type[Shape] | None:
    """The shape among a field's types that has the keys of a value."""
    if isinstance(annotation, type):
        return annotation if issubclass(annotation, Shape) and _has(annotation, value) else None
    inner = (_shape_of(each, value) for each in get_args(annotation))
    return next((each for each in inner if each is not None), None)


def _has(shape: type[Shape], value: Any) -> bool:
    names = {field.alias or name for name, field in shape.model_fields.items()}
    return isinstance(value, Mapping) and names >= value.keys()
