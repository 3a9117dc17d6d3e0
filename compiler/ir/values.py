"""The values that a slot may have, when two are equal, and how a value is shown to people."""

from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from tunec.compiler.ir.slots import SLOTS
from tunec.schemas.caches import cached
from tunec.schemas.units import format_bytes, format_count

LEFT_OPEN: Final = frozenset({"data.format", "data.loss_on"})
"""Slots whose None leaves it to the program, so that whatever it does by default is right."""


@cached()
def alternatives(kind: Any) -> tuple[Any, ...]:
    """The members of a slot's type: `int | None` has two, any other type only itself."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def is_same(value: Any, other: Any) -> bool:
    """Equality that distinguishes True from 1."""
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


def show(slot: str, value: Any) -> str:
    """A slot's value with its unit: `72.0 GiB`, `8 samples`, `q_proj, v_proj`."""
    unit = SLOTS[slot].unit if slot in SLOTS else ""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(_item(each) for each in value) or "none"
    if unit == "bytes":
        return format_bytes(value)
    if unit in ("parameters", "elements"):
        return format_count(value)
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def _item(value: Any) -> str:
    return "=".join(map(str, value)) if isinstance(value, tuple) else str(value)


def plain(value: Any) -> Any:
    """A slot's value as JSON represents it."""
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    return value
