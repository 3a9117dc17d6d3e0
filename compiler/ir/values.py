"""What a slot's value may be, and when two of them are the same."""

from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin


@cache
def alternatives(kind: Any) -> tuple[Any, ...]:
    """The types that a slot's type joins: `int | None` is both, any other is itself."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def is_same(value: Any, other: Any) -> bool:
    """Equality that tells True from 1."""
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)
