"""Values that look like another type than YAML reads: the reason, and the correction."""

import json
import re
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.diagnostics.wording import shortened
from tunec.compiler.frontend.nodes import Node
from tunec.compiler.frontend.yaml_scalars import construct, resolve


class Trap(Struct, frozen=True):
    """Facts about how a value was read, and its correction."""

    notes: tuple[str, ...] = ()
    help: str | None = None
    text: str | None = None
    """The correction, if only one is possible."""


_NUMBER_WORDS: Final = frozenset({"a whole number", "a number"})
_YES: Final = {
    "yes": "true",
    "on": "true",
    "y": "true",
    "no": "false",
    "off": "false",
    "n": "false",
}
_THOUSANDS: Final = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+")

_WORD: Final = re.compile(r"[A-Za-z][\w./-]*")
"""Text that means the same inside the brackets of a list."""


def trap(value: Any, wanted: list[str], node: Node) -> Trap:
    """The reason why a value has the wrong type, if the intended value is evident."""
    written = node.written
    if isinstance(value, str):
        if "`true` or `false`" in wanted and value.lower() in _YES | {"true": "", "false": ""}:
            return _truth(value, written)
        if _NUMBER_WORDS & set(wanted):
            return _number(value, written)
    if "a list" in wanted and isinstance(value, str) and _WORD.fullmatch(value):
        return Trap((), f"write `[{value}]`", f"[{value}]")
    if "text" in wanted and written is not None and isinstance(value, bool | int | float):
        return _text(value, written)
    if "a whole number" in wanted and isinstance(value, float) and value.is_integer():
        return Trap((), f"write `{value:.0f}`", f"{value:.0f}")
    return Trap()


def _truth(value: str, written: str | None) -> Trap:
    meant = _YES.get(value.lower(), value.lower())
    if written is None:
        return Trap(("in quotes it is text",), f"write `{meant}` without quotes", meant)
    note = f"YAML 1.1 reads `{written}` as {meant}; YAML 1.2, and so a spec, reads text"
    return Trap((note,), f"write `{meant}`", meant)


def _text(value: Any, written: str) -> Trap:
    quoted = json.dumps(written)
    lost = str(value).lower() != written.lower()
    read = str(value).lower() if isinstance(value, bool) else value
    note = (
        f"unquoted, `{written}` means the "
        f"{('value' if isinstance(value, bool) else 'number')} {read}"
    )
    return Trap((note,) if lost or isinstance(value, bool) else (), f"write `{quoted}`", quoted)


def _number(value: str, written: str | None) -> Trap:
    bare = value.strip()
    if written is None and re.fullmatch(r"[-+]?[\d.]+(?:[eE][-+]?\d+)?", bare):
        return Trap(("in quotes it is text",), f"write `{bare}` without quotes", bare)
    if _THOUSANDS.fullmatch(bare):
        plain = bare.replace(",", "")
        return Trap(("a comma does not separate thousands",), f"write `{plain}`", plain)
    old = _in_yaml_1_1(bare)
    if isinstance(old, int | float) and not isinstance(old, bool):
        plain = bare.lstrip("0") or "0"
        note = f"YAML 1.1 reads `{shortened(bare)}` as {old}; readers differ, so a spec takes text"
        remedy = f"write `{plain}`" if plain.isdecimal() else f"if `{old}` is meant, write that"
        return Trap((note,), remedy)
    return Trap()


def _in_yaml_1_1(text: str) -> Any:
    build: Callable[..., Any] = construct
    try:
        return build(resolve(text, core_schema=False), text, core_schema=False)
    except (ValueError, OverflowError):
        return None
