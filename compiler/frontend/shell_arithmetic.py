"""The value of `$(( ... ))` for whole numbers and variables that a script sets (bash manual 6.5).

Only `+ - * / %` and parentheses are evaluated; other expressions are unknown, as are numbers that
begin with 0, which are octal.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct

_TOKEN: Final = re.compile(r"\s*(?:(0|[1-9]\d{0,11})(?!\w)|\$?\{?([A-Za-z_]\w*)\}?|([-+*/%()]))\s*")
_LONGEST: Final = 400
_DEEPEST: Final = 16
_LARGEST: Final = 10**12

Value = Callable[[str], str | None]
"""The text of a variable; None if the script does not determine it."""


class _NotKnownError(Exception):
    """Part of an expression is only known at run time, or is not supported."""


def computed(expression: str, value: Value) -> int | None:
    """The value of an expression; None if it is unknown.

    Division truncates towards zero, as in bash. Raises nothing.
    """
    if len(expression) > _LONGEST:
        return None
    try:
        reader = _Reader(list(_tokens(expression, value)))
        found = reader.sum(0)
        return found if reader.at == len(reader.tokens) else None
    except _NotKnownError:
        return None


def _tokens(expression: str, value: Value) -> Iterator[int | str]:
    at = 0
    while at < len(expression):
        found = _TOKEN.match(expression, at)
        if found is None or found.end() == at:
            raise _NotKnownError
        number, name, sign = found.groups()
        yield _held(number) if number else sign or _held(value(name))
        at = found.end()


def _held(text: str | None) -> int:
    if text is None or not re.fullmatch(r"-?(?:0|[1-9]\d{0,11})", text.strip()):
        raise _NotKnownError
    return int(text)


class _Reader(Struct):
    tokens: list[int | str]
    at: int = 0

    def sum(self, depth: int) -> int:
        """A sum or difference of products."""
        found = self._product(depth)
        while self._is("+", "-"):
            sign = self._next()
            term = self._product(depth)
            found = _bounded(found + term if sign == "+" else found - term)
        return found

    def _product(self, depth: int) -> int:
        found = self._unit(depth)
        while self._is("*", "/", "%"):
            sign = self._next()
            by = self._unit(depth)
            if sign == "*":
                found = _bounded(found * by)
                continue
            if by == 0:
                raise _NotKnownError
            whole = abs(found) // abs(by) * (1 if (found < 0) == (by < 0) else -1)
            found = whole if sign == "/" else found - whole * by
        return found

    def _unit(self, depth: int) -> int:
        word = self._next()
        if isinstance(word, int):
            return word
        if depth < _DEEPEST and word == "-":
            return -self._unit(depth + 1)
        if depth < _DEEPEST and word == "(":
            found = self.sum(depth + 1)
            if self._next() == ")":
                return found
        raise _NotKnownError

    def _is(self, *signs: str) -> bool:
        return self.at < len(self.tokens) and self.tokens[self.at] in signs

    def _next(self) -> int | str:
        if self.at >= len(self.tokens):
            raise _NotKnownError
        self.at += 1
        return self.tokens[self.at - 1]


def _bounded(number: int) -> int:
    if abs(number) > _LARGEST:
        raise _NotKnownError
    return number
