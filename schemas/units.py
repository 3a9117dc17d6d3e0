"""Quantities with units: what people write (`80GiB`, `90%`, `2M`) and what programs count.

Every quantity is a plain `int` or `float` once it is read; the unit is in the type's name and in
the field's description. Binary prefixes (`GiB`) are powers of 1024, decimal ones (`GB`) of 1000
(IEC 80000-13). Ambiguous forms are refused: `G` alone for bytes, a bare number that is too small to
be bytes, and `2k` for a length in tokens, by which people mean 2048.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Final, Literal

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
SECOND_UNITS: Final[Mapping[str, int]] = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
COUNT_UNITS: Final[Mapping[str, int]] = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9}

_NUMBER = r"(?P<number>(?:0|[1-9]\d*(?:_\d+)*)(?:\.\d+)?)"
"""No leading zero: `016` is 14 in YAML 1.1 and 16 in 1.2."""
_BYTES = re.compile(rf"{_NUMBER}\s*(?P<unit>[KMGT]iB|[kKMGT]?B)", re.ASCII)
_COUNT = re.compile(rf"{_NUMBER}\s*(?P<unit>[kKMB]?)(?:\s*(?:tokens|samples|steps))?", re.ASCII)
_TIME = re.compile(rf"{_NUMBER}\s*(?P<unit>s|min|h|d)", re.ASCII)
_LENGTH = re.compile(rf"{_NUMBER}(?:\s*tokens)?", re.ASCII)
_PERCENT = re.compile(rf"{_NUMBER}\s*%", re.ASCII)

RATE_UNITS: Final[Mapping[str, Fraction]] = {
    **{f"{unit}/s": Fraction(size) for unit, size in BYTE_UNITS.items()},
    **{
        f"{prefix}bit/s": Fraction(10**power, 8)
        for prefix, power in (("M", 6), ("G", 9), ("T", 12))
    },
}
_RATE = re.compile(rf"{_NUMBER}\s*(?P<unit>(?:[KMGT]iB|[kKMGT]?B|[MGT]bit)/s)", re.ASCII)

INT64: Final = 2**63 - 1
"""The programs that read these numbers store them in 64 bits."""
_INT32: Final = 2**31 - 1
_LONGEST: Final = 40
"""Characters of the longest quantity; no sensible one comes near."""


_LEAST_BYTES: Final = GIB
"""A bare number from here on is in bytes, as programs write it. No planned run has less memory, so
a smaller number lacks its unit (64 for 64GiB, 81559 for 81559MiB)."""
_LEAST_RATE: Final = 10**7
"""A bare number from here on is in bytes per second: no link of a planned run is slower."""


Quantity = Literal["amount", "count", "share", "time", "length", "rate"]


class NotAQuantity(ValueError):
    """A value is not the expected quantity; the message says why."""

    def __init__(self, quantity: Quantity, value: Any, why: str) -> None:
        self.quantity = quantity
        self.value = value
        text = str(value)
        super().__init__(f"`{text if len(text) <= _LONGEST else text[:_LONGEST] + '…'}` {why}")


def _matched(text: str, quantity: Quantity, pattern: re.Pattern[str], what: str) -> re.Match[str]:
    match = pattern.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if match is None:
        raise NotAQuantity(quantity, text, f"is not {what}")
    return match


def _scaled(
    text: str, quantity: Quantity, pattern: re.Pattern[str], units: Mapping[str, int], what: str
) -> Fraction:
    match = _matched(text, quantity, pattern, what)
    return Fraction(match["number"].replace("_", "")) * units[match["unit"]]


def parse_bytes(value: Any) -> Any:
    """Read `80GiB`, or the whole number of bytes that a program wrote.

    Raise NotAQuantity for any other text, and for a number that lacks its unit.
    """
    if is_number(value) and 0 < value < _LEAST_BYTES:
        raise NotAQuantity("amount", value, f"has no unit, and would be {value} bytes")
    if isinstance(value, str):
        what = "an amount of memory, such as 80GiB or 512MB"
        return round(_scaled(value, "amount", _BYTES, BYTE_UNITS, what))
    return value


def is_number(value: Any) -> bool:
    """Whether a value is a number; a boolean is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def parse_length(value: Any) -> Any:
    """Read a whole number of tokens; raise NotAQuantity for `2k`, which may be 2000 or 2048."""
    if isinstance(value, str):
        match = _matched(value, "length", _COUNT, "a length in tokens, such as 4096")
        if match["unit"]:
            size = Fraction(match["number"].replace("_", "")) * COUNT_UNITS[match["unit"]]
            likely = likely_length(value)
            more = f" or {likely}" if likely else ""
            raise NotAQuantity("length", value, f"may be meant as {float(size):.0f}{more} tokens")
    return parse_count(value)


def parse_rate(value: Any) -> Any:
    """Read `25GB/s`, `200Gbit/s` or a number of bytes per second; raise NotAQuantity for others."""
    if is_number(value) and 0 < value < _LEAST_RATE:
        raise NotAQuantity("rate", value, f"has no unit, and would be {value} bytes per second")
    if isinstance(value, str):
        what = "a rate, such as 25GB/s or 200Gbit/s"
        match = _matched(value, "rate", _RATE, what)
        return float(Fraction(match["number"].replace("_", "")) * RATE_UNITS[match["unit"]])
    return value


def parse_count(value: Any) -> Any:
    """Read `2M`, `64k`, `2M tokens` or a whole number; raise NotAQuantity for any other text."""
    if isinstance(value, str):
        what = "a count, such as 4096, 64k or 2M tokens"
        count = _scaled(value, "count", _COUNT, COUNT_UNITS, what)
        if count.denominator != 1:
            raise NotAQuantity("count", value, "is not a count: it is not whole")
        return int(count)
    return value


def parse_seconds(value: Any) -> Any:
    """Read `12h`, `90min` or `2d` as whole seconds; raise NotAQuantity for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise NotAQuantity("time", value, "has no unit: s, min, h or d")
    if isinstance(value, str):
        return round(_scaled(value, "time", _TIME, SECOND_UNITS, "a time, such as 12h or 90min"))
    return value


def parse_share(value: Any) -> Any:
    """Read `90%` or a number between 0 and 1; raise NotAQuantity for any other text."""
    if isinstance(value, str):
        match = _matched(value, "share", _PERCENT, "a share, such as 90% or 0.9")
        return float(Fraction(match["number"].replace("_", "")) / 100)
    return value


def parse_budget(value: Any) -> Any:
    """Read an amount of memory or a share of it: `72GiB` gives an int, `90%` or 0.9 a float.

    NotAQuantity is raised for a number that lacks its unit, and for a share above one.
    """
    given = value
    if isinstance(value, str) and value.strip().endswith("%"):
        value = parse_share(value)
    if isinstance(value, float) and not 0 < value <= 1 and (value < 2 or given is not value):
        raise NotAQuantity("share", given, "is not a share: above 0, and at most 1 (100%)")
    return value if isinstance(value, float) and value <= 1 else parse_bytes(value)


def _plain(pattern: re.Pattern[str]) -> str:
    return re.sub(r"\?P<\w+>", "", pattern.pattern)


def _text_or_number(
    pattern: re.Pattern[str], example: str, kind: str, least: float = 0
) -> WithJsonSchema:
    text = {"type": "string", "pattern": f"^{_plain(pattern)}$"}
    most = {"maximum": 1} if pattern is _PERCENT else {}
    number = {"type": kind, "minimum": least, **most}
    return WithJsonSchema({"anyOf": [number, text], "examples": [example]})


Bytes = Annotated[
    int,
    BeforeValidator(parse_bytes),
    Field(ge=0, le=INT64, strict=True),
    _text_or_number(_BYTES, "80GiB", "integer", least=_LEAST_BYTES),
]
"""Memory in bytes; written as `80GiB`, `512MB`, or by programs as a whole number of bytes."""

Rate = Annotated[
    float,
    BeforeValidator(parse_rate),
    Field(gt=0, allow_inf_nan=False),
    _text_or_number(_RATE, "25GB/s", "number", least=_LEAST_RATE),
]
"""Bytes per second; written as `25GB/s`, `200Gbit/s` or a number of bytes per second."""

Length = Annotated[
    int,
    BeforeValidator(parse_length),
    Field(ge=1, le=INT64, strict=True),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "string", "pattern": f"^{_plain(_LENGTH)}$"},
            ],
            "examples": [4096],
        }
    ),
]
"""A length in tokens; written as `4096`: `4k` means 4000 here, and people mean 4096 by it."""

Count = Annotated[
    int,
    BeforeValidator(parse_count),
    Field(ge=0, le=INT64, strict=True),
    _text_or_number(_COUNT, "64k", "integer"),
]
"""A number of things; written as `4096`, `64k`, `2M` or `2M tokens`."""

PositiveCount = Annotated[
    int,
    BeforeValidator(parse_count),
    Field(ge=1, le=INT64, strict=True),
    _text_or_number(_COUNT, "64k", "integer", least=1),
]
"""A number of things, at least one."""

Share = Annotated[
    float,
    BeforeValidator(parse_share),
    Field(ge=0, le=1, strict=True),
    _text_or_number(_PERCENT, "90%", "number"),
]
"""A part of a whole, between 0 and 1; written as `90%` or `0.9`."""


Budget = Annotated[
    int | float,
    BeforeValidator(parse_budget),
    Field(gt=0, allow_inf_nan=False),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
                {"type": "integer", "minimum": _LEAST_BYTES},
                {"type": "string", "pattern": f"^(?:{_plain(_BYTES)}|{_plain(_PERCENT)})$"},
            ],
            "examples": ["72GiB", "90%"],
        }
    ),
]
"""An amount (`72GiB`) or a share of the available memory (`90%`)."""

Duration = Annotated[
    int,
    BeforeValidator(parse_seconds),
    Field(ge=60, le=_INT32, strict=True),
    WithJsonSchema({"type": "string", "pattern": f"^{_plain(_TIME)}$", "examples": ["12h"]}),
]
"""A length of time in seconds, at least a minute; written as `12h`, `90min` or `2d`."""

Whole = Annotated[int, Field(ge=1, le=_INT32)]
"""A whole number, at least 1: widths, ranks, sides in pixels."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""A finite number above zero."""

_SHORT: Final = re.compile(r"(?P<number>\d[\d_]*(?:\.\d+)?)\s*(?P<unit>[A-Za-z]*)")
_BINARY_OF: Final = {"k": "KiB", "m": "MiB", "g": "GiB", "t": "TiB"}


def likely_bytes(text: str) -> str | None:
    """The amount that a refused text probably means: `80G` and `80gb` give `80GiB` and `80GB`."""
    match = _SHORT.fullmatch(text.strip())
    if match is None:
        return None
    unit = match["unit"].lower()
    spelled = next((each for each in BYTE_UNITS if each.lower() == unit and each != "kB"), None)
    bare = _unit_of(float(match["number"].replace("_", ""))) if not unit else None
    found = spelled or _BINARY_OF.get(unit) or bare
    return f"{match['number']}{found}" if found else None


def _unit_of(number: float) -> str:
    """The unit in which a machine's memory would be this number: 64 GiB, 81559 MiB."""
    return "GiB" if number < 4 * KIB else "MiB" if number < 4 * MIB else "KiB"


def likely_length(text: str) -> int | None:
    """The length in tokens that a refused text probably means: 2048 for `2k`."""
    match = _COUNT.fullmatch(text.strip())
    if match is None or match["unit"].lower() not in ("k", "m"):
        return None
    length = Fraction(match["number"].replace("_", "")) * (KIB if match["unit"] in "kK" else MIB)
    return int(length) if length.denominator == 1 else None


def format_bytes(amount: float) -> str:
    """An amount of bytes as people compare memory: `15.9 GiB`, `412 MiB`, `96 B`."""
    if abs(amount) >= GIB:
        return f"{amount / GIB:.1f} GiB"
    if abs(amount) >= MIB:
        return f"{amount / MIB:.0f} MiB"
    if abs(amount) >= KIB:
        return f"{amount / KIB:.0f} KiB"
    return f"{amount:.0f} B"


def format_count(amount: float) -> str:
    """A large number in short form: `8.03B`, `3.2M`, `64k`, `512`."""
    for unit, size in (("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if abs(amount) >= size:
            return f"{amount / size:.3g}{unit}"
    return f"{amount:g}"
