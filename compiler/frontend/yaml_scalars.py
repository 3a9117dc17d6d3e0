"""How an unquoted YAML scalar becomes a value: YAML 1.1 as PyYAML reads it, or the core schema."""

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Final

from yaml.constructor import SafeConstructor
from yaml.nodes import ScalarNode
from yaml.resolver import Resolver

from tunec.compiler.frontend.nodes import MAX_DIGITS, is_too_large

_PREFIX: Final = "tag:yaml.org,2002:"
STR: Final = _PREFIX + "str"
NULL: Final = _PREFIX + "null"
BOOL: Final = _PREFIX + "bool"
INT: Final = _PREFIX + "int"
FLOAT: Final = _PREFIX + "float"
MAP: Final = _PREFIX + "map"
SEQ: Final = _PREFIX + "seq"
MERGE: Final = _PREFIX + "merge"
VALUE: Final = _PREFIX + "value"
"""The tag of a lone `=` in YAML 1.1; PyYAML has no reader for it, nor for `<<` as a value."""
TIMESTAMP: Final = _PREFIX + "timestamp"
CORE_TAGS: Final = frozenset((STR, NULL, BOOL, INT, FLOAT, MAP, SEQ))
"""The tags that a document may write out (YAML 1.2, 10.3)."""

_RESOLVER: Final[Any] = Resolver()
_CONSTRUCTOR: Final = SafeConstructor()
_CONSTRUCT_1_1: Final[Mapping[str, Callable[[ScalarNode], Any]]] = {
    NULL: _CONSTRUCTOR.construct_yaml_null,
    BOOL: _CONSTRUCTOR.construct_yaml_bool,
    INT: _CONSTRUCTOR.construct_yaml_int,
    FLOAT: _CONSTRUCTOR.construct_yaml_float,
    TIMESTAMP: _CONSTRUCTOR.construct_yaml_timestamp,
}

_CORE: Final = (
    (NULL, re.compile("~|null|Null|NULL|")),
    (BOOL, re.compile("true|True|TRUE|false|False|FALSE")),
    (INT, re.compile("[-+]?(?:0|[1-9][0-9]*(?:_[0-9]+)*)|0x[0-9a-fA-F]+|0o[0-7]+")),
    (
        FLOAT,
        re.compile(
            r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*(?:_[0-9]+)*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
        ),
    ),
    (MERGE, re.compile("<<")),
)
"""YAML 1.2, 10.3.2, with two changes: `1_000` is a number as in YAML 1.1, and `016`, which 1.1
reads as 14 and 1.2 as 16, stays text so that the type error can explain it."""

_LARGEST_WHOLE: Final = 2**63


def resolve(text: str, *, core_schema: bool) -> str:
    """The tag of an unquoted scalar."""
    if not core_schema:
        tag: str = _RESOLVER.resolve(ScalarNode, text, (True, False))
        return tag
    return next((tag for tag, pattern in _CORE if pattern.fullmatch(text)), STR)


def construct(tag: str, text: str, *, core_schema: bool) -> Any:
    """The value of a scalar. Raises ValueError if the text does not fit the tag."""
    value = _construct(tag, text, core_schema=core_schema)
    if isinstance(value, int) and is_too_large(value):
        raise ValueError(f"more than {MAX_DIGITS} digits")
    return value


def _construct(tag: str, text: str, *, core_schema: bool) -> Any:
    if tag in (STR, MERGE):
        return text
    if core_schema:
        return _construct_core(tag, text)
    if tag not in _CONSTRUCT_1_1:
        raise ValueError(f"{text!r} has a meaning in YAML 1.1 that no reader implements")
    if tag == BOOL and text.lower() not in SafeConstructor.bool_values:
        raise ValueError(f"{text!r} is not a boolean")
    return _CONSTRUCT_1_1[tag](ScalarNode(tag, text))


def _construct_core(tag: str, text: str) -> Any:
    pattern = dict(_CORE)[tag]
    if not pattern.fullmatch(text):
        raise ValueError(f"{text!r} does not match its tag")
    if tag == NULL:
        return None
    if tag == BOOL:
        return text.lower() == "true"
    return _whole(text) if tag == INT else _fraction(text)


def _whole(text: str) -> int:
    base = {"0x": 16, "0o": 8}.get(text[:2], 10)
    return int(text, base)


def _fraction(text: str) -> float | int:
    """A number; `5e8` is a whole number, so that counts can be written this way."""
    bare = text.lower().replace("_", "")
    if bare.endswith(("inf", "nan")):
        return float(bare.replace(".", ""))
    value = float(bare)
    if "e" in bare and abs(value) < _LARGEST_WHOLE:
        exact = Fraction(bare) if _is_short(bare) else Fraction(1, 2)
        return int(exact) if exact.denominator == 1 else value
    return value


def _is_short(number: str) -> bool:
    """Whether the exponent is small enough for exact arithmetic to be cheap."""
    return abs(int(number.partition("e")[2])) <= 64
