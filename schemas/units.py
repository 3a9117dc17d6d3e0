"""Quantities with units: what people write (`80GiB`, `90%`, `2M`) and what programs count.

Every quantity is a plain `int` or `float` once read; the unit lives in the type's name and in the
field's description. Binary prefixes (`GiB`) are powers of 1024, decimal ones (`GB`) of 1000
(IEC 80000-13); `G` alone is refused for bytes because people mean both.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, WithJsonSchema

KIB: Final = 1024
MIB: Final = KIB**2
GIB: Final = KIB**3

BYTE_UNITS: Final[Mapping[str, int]] = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": KIB,
    "MiB": MIB,
    "GiB": GIB,
    "TiB": KIB**4,
}
COUNT_UNITS: Final[Mapping[str, int]] = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9}

_NUMBER = r"(?P<number>\d[\d_]*(?:\.\d+)?)"
_BYTES = re.compile(rf"{_NUMBER}\s*(?P<unit>[KMGT]iB|[kKMGT]?B)")
_COUNT = re.compile(rf"{_NUMBER}\s*(?P<unit>[kKMB]?)(?:\s*(?:tokens|samples|steps))?")
_PERCENT = re.compile(rf"{_NUMBER}\s*%")


def _scaled(text: str, pattern: re.Pattern[str], units: Mapping[str, int], hint: str) -> int:
    match = pattern.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not {hint}")
    return round(float(match["number"].replace("_", "")) * units[match["unit"]])


def parse_bytes(value: Any) -> Any:
    """Read `80GiB` or a whole number of bytes; raise ValueError for any other text."""
    if isinstance(value, str):
        return _scaled(value, _BYTES, BYTE_UNITS, "an amount of memory, such as 80GiB or 512MB")
    return value


def parse_count(value: Any) -> Any:
    """Read `2M`, `64k`, `2M tokens` or a whole number; raise ValueError for any other text."""
    if isinstance(value, str):
        return _scaled(value, _COUNT, COUNT_UNITS, "a count, such as 4096, 64k or 2M tokens")
    return value


def parse_share(value: Any) -> Any:
    """Read `90%` or a number between 0 and 1; raise ValueError for any other text."""
    if isinstance(value, str):
        match = _PERCENT.fullmatch(value.strip())
        if match is None:
            raise ValueError(f"{value!r} is not a share, such as 90% or 0.9")
        return float(match["number"].replace("_", "")) / 100
    return value


def parse_budget(value: Any) -> Any:
    """Read an amount of memory or a share of it: `72GiB` gives an int, `90%` or 0.9 a float."""
    if isinstance(value, str) and value.strip().endswith("%"):
        return parse_share(value)
    return parse_bytes(value)


def _text_or_number(pattern: re.Pattern[str], example: str, kind: str) -> WithJsonSchema:
    plain = re.sub(r"\?P<\w+>", "", pattern.pattern)
    return WithJsonSchema(
        {
            "anyOf": [{"type": kind, "minimum": 0}, {"type": "string", "pattern": f"^{plain}$"}],
            "examples": [example],
        }
    )


Bytes = Annotated[
    int,
    BeforeValidator(parse_bytes),
    Field(ge=0, strict=True),
    _text_or_number(_BYTES, "80GiB", "integer"),
]
"""Memory in bytes; written as `80GiB`, `512MB` or a whole number of bytes."""

Count = Annotated[
    int,
    BeforeValidator(parse_count),
    Field(ge=0, strict=True),
    _text_or_number(_COUNT, "64k", "integer"),
]
"""A number of things; written as `4096`, `64k`, `2M` or `2M tokens`."""

Share = Annotated[
    float,
    BeforeValidator(parse_share),
    Field(ge=0, le=1, strict=True),
    _text_or_number(_PERCENT, "90%", "number"),
]
"""A part of a whole, between 0 and 1; written as `90%` or `0.9`."""


def format_bytes(amount: float) -> str:
    """Say an amount of bytes the way people compare memory: `15.9 GiB`, `412 MiB`, `96 B`."""
    if abs(amount) >= GIB:
        return f"{amount / GIB:.1f} GiB"
    if abs(amount) >= MIB:
        return f"{amount / MIB:.0f} MiB"
    if abs(amount) >= KIB:
        return f"{amount / KIB:.0f} KiB"
    return f"{amount:.0f} B"


def format_count(amount: float) -> str:
    """Say a large number shortly: `8.03B`, `3.2M`, `64k`, `512`."""
    for unit, size in (("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if abs(amount) >= size:
            return f"{amount / size:.3g}{unit}"
    return f"{amount:g}"
