"""The spec's language as a page: each field with type, default, meaning and an example."""

import json
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from types import NoneType
from typing import Any, Final, Literal, get_args, get_origin

from pydantic import BeforeValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tunec.compiler.frontend.fields import field_docs, named_fields, shapes_in
from tunec.schemas.caches import cached
from tunec.schemas.shape import Shape
from tunec.schemas.source import dotted
from tunec.schemas.spec import Spec
from tunec.schemas.units import (
    parse_budget,
    parse_bytes,
    parse_count,
    parse_length,
    parse_rate,
    parse_share,
)

Path = tuple[str, ...]
Row = tuple[str, str, str, str, str]
HEAD: Final[Row] = ("field", "type", "default", "meaning", "example")

INTRODUCTION: Final = (
    (
        "A spec states what to train, on which hardware, and in how much memory. `tunec init -o "
        "spec.yaml` writes one to start from, with the JSON Schema that editors use for "
        "completion. `tunec`, `model`, `method`, `data` with `train` and `sequence`, and "
        "`hardware` are enough: tunec decides everything else, and `tunec plan` shows what and "
        "why."
    ),
    (
        "`extends: base.yaml`, or a list of files, takes values that this spec does not set "
        "from other specs. `${path.to.key}` refers to another value of the spec. On the command "
        "line, `--set PATH=VALUE` overrides any value, and `--hardware` the hardware. Any "
        "decision can be pinned by its [slot](slots.md): `pin: {zero.stage: 2}`."
    ),
    (
        "`tunec translate FILE... --to spec`, or `tunec init --from FILE...`, turns existing "
        "config files into a spec. Each intent goes to its field. A pin holds what the files "
        "set, or leave to their program's default, if tunec would decide differently; a comment "
        "beside it says where it was read. Keys that tunec does not decide go to `extra`. Keys "
        "that fit nowhere are listed below the spec and reported. If no file gives the model, "
        "method, data or hardware, the place is marked and the exit code is 1; until model, "
        "method and hardware are known, the whole layout that was read is pinned. `targets` are "
        "the dialects that were read, with the releases that `--from` or `--software` name."
    ),
)
"""The text before the fields."""

QUANTITIES: Final[Mapping[str, str]] = {
    "amount of memory": "`80GiB` (powers of 1024), `80GB` (of 1000); a bare number below 1 GiB is "
    "refused, since its unit is missing",
    "share": "`90%`, or a number from 0 to 1",
    "bytes per second": "`25GB/s`, `200Gbit/s`; a bare number below 10 MB/s is refused",
    "count": "`4096`, `64k`, `2M`: thousands and millions",
    "length in tokens": "`4096`: `4k` is refused, since it may be 4000 or 4096",
}
"""How to write quantities."""

_QUANTITIES: Final[Mapping[Any, str]] = {
    parse_bytes: "amount of memory",
    parse_budget: "amount of memory, or share",
    parse_rate: "bytes per second",
    parse_count: "count",
    parse_length: "length in tokens",
    parse_share: "share",
}
_PLAIN: Final[Mapping[Any, str]] = {
    int: "whole number",
    float: "number",
    bool: "`true` or `false`",
    str: "text",
    Any: "any value",
}


def sections() -> Iterator[tuple[Path, type[Shape]]]:
    """Every shape of a spec with its first path, from the whole to its parts."""
    yield from _sections(Spec, (), set())


def _sections(
    shape: type[Shape], path: Path, seen: set[type[Shape]]
) -> Iterator[tuple[Path, type[Shape]]]:
    if shape in seen:
        return
    seen.add(shape)
    yield path, shape
    for name, info in named_fields(shape).items():
        for inner in shapes_in(info.annotation):
            yield from _sections(inner, (*path, name), seen)


def own_fields(shape: type[Shape]) -> dict[str, FieldInfo]:
    """The fields of a shape without those of a shape that it extends and that precedes it."""
    above = _above(shape)
    inherited = above.model_fields if above is not None else {}
    return {n: info for n, info in named_fields(shape).items() if n not in inherited}


@cached()
def _above(shape: type[Shape]) -> type[Shape] | None:
    """The shape that one extends, if the page already has it."""
    above, places = shape.__mro__[1], [each for _, each in sections()]
    is_before = above in places and places.index(above) < places.index(shape)
    return above if is_before else None


def about(shape: type[Shape]) -> str:
    """The description of a shape, and of the fields that it inherits."""
    above = _above(shape)
    more = f" It has the fields of `method.{above.__name__.lower()}` too." if above else ""
    return " ".join((shape.__doc__ or "").split()) + more


def rows(path: Path, shape: type[Shape]) -> Iterator[Row]:
    """A row for each field of a shape."""
    docs = field_docs(shape)
    for name, info in own_fields(shape).items():
        shown = f"`{name}: {_text(examples()[dotted((*path, name))])}`"
        says = docs.get(name) or next(map(_summary, shapes_in(info.annotation)), "")
        yield f"`{name}`", _type(info), _default(info), says, shown


def _summary(shape: type[Shape]) -> str:
    return (shape.__doc__ or "").partition("\n")[0]


@cached()
def examples() -> Mapping[str, Any]:
    """A value for each field, by the field's path."""
    import yaml

    text = (files("tunec.schemas") / "spec_examples.yaml").read_text("utf-8")
    found: Mapping[str, Any] = yaml.safe_load(text)
    return found


def _text(value: Any) -> str:
    """A value as YAML has it on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_text(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return json.dumps(value) if _is_ambiguous(value) else value


def _is_ambiguous(text: str) -> bool:
    """Whether a text would be read as a number without its quotes."""
    return text.replace(".", "").isdigit()


# ── types and defaults in words ──────────────────────────────────────────────────────────────────


def _type(info: FieldInfo) -> str:
    for each in info.metadata:
        if isinstance(each, BeforeValidator):
            return _validated(each, info.annotation)
    return _words(info.annotation)


def _validated(validator: BeforeValidator, annotation: Any) -> str:
    function: Callable[..., Any] = validator.func
    if function in _QUANTITIES:
        return _QUANTITIES[function]
    given = validator.json_schema_input_type
    return _words(annotation if given is PydanticUndefined else given)


def _words(kind: Any) -> str:
    """A type in words, without None, which the default shows."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Literal:
        return ", ".join(f"`{_text(word) if isinstance(word, bool) else word}`" for word in inside)
    if hasattr(kind, "__metadata__"):
        found = [each for each in kind.__metadata__ if isinstance(each, BeforeValidator)]
        return _validated(found[0], inside[0]) if found else _words(inside[0])
    if origin is tuple:
        return f"list of {_words(inside[0])}"
    if origin is dict:
        return "mapping"
    if inside:
        return " or ".join(dict.fromkeys(_words(each) for each in inside if each is not NoneType))
    if isinstance(kind, type) and issubclass(kind, Shape):
        return "mapping"
    return _PLAIN[kind]


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    if value in (None, (), {}, ""):
        return ""
    if isinstance(value, Shape):
        given = value.model_dump(by_alias=True, exclude_unset=True)
        return f"`{_text(_plain(given))}`" if given else ""
    return f"`{_text(_plain(value))}`"


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=list))
