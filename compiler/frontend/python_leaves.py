"""Single values of a Python file: which are plain, and small arithmetic."""

import ast
from math import isfinite
from typing import Any, Final

from tunec.compiler.frontend.nodes import is_too_large
from tunec.compiler.frontend.shell_flags import Unknown

HIDDEN: Final = Unknown("", "only running the file tells")
LONGEST: Final = 10_000
"""The most characters of a concatenated text."""
_MOST_BITS: Final = 128
Numbers = int | float


def is_number(value: Any) -> bool:
    """Whether a value is a number, not a truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_plain(value: Any) -> bool:
    """Whether a configuration may hold a value, and its size is reasonable."""
    if isinstance(value, str):
        return len(value) <= LONGEST
    if isinstance(value, float):
        return isfinite(value)
    return value is None or (isinstance(value, int) and not is_too_large(value))


def power(base: Numbers, exponent: Numbers) -> Any:
    """A power that is neither long nor complex."""
    if isinstance(base, int) and isinstance(exponent, int):
        is_small = exponent >= 0 and base.bit_length() * exponent <= _MOST_BITS
        return base**exponent if is_small else _fraction(base, exponent)
    return _fraction(base, exponent)


def _fraction(base: Numbers, exponent: Numbers) -> Any:
    try:
        return float(base) ** float(exponent)
    except (ArithmeticError, ValueError):
        return HIDDEN


def is_bare(node: ast.FormattedValue) -> bool:
    """Whether a part of an f-string has no conversion and no format."""
    return node.conversion == -1 and node.format_spec is None


def is_literal(node: ast.expr) -> bool:
    """Whether a literal can be replaced by another in the file."""
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant)
