"""The result of an `if` test whose words are known, and the variables in it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from operator import eq, ge, gt, le, lt, ne
from typing import Final

from tunec.compiler.frontend.shell_variables import Value, fields
from tunec.compiler.frontend.shell_words import Word

Tests = Sequence[tuple[Sequence[Word], str]]
"""The commands between `if` and `then`, each with its end."""
_BRACKETS: Final = frozenset({"[", "[[", "]", "]]", "test", "(", ")", "(("})
_NUMBERS: Final = {"-eq": eq, "-ne": ne, "-gt": gt, "-ge": ge, "-lt": lt, "-le": le}
_TEXTS: Final = {"=": eq, "==": eq, "!=": ne}
_NAME: Final = re.compile(r"\$\{?([A-Za-z_]\w*)")


def names_in(tests: Tests) -> Iterator[str]:
    """The variables in a test."""
    for words, _ in tests:
        for word in words:
            yield from _NAME.findall(word.written.text)


def is_met(tests: Tests, known: Mapping[str, Value]) -> bool | None:
    """Whether a test succeeds; None if that is unknown, or the test is of another kind."""
    found = [_one(words, known) for words, _ in tests]
    joints = {end.strip() for _, end in tests[:-1]}
    if not found or not joints <= {"&&"} or None in found:
        return False if joints <= {"&&"} and False in found else None
    return all(found)


def _one(words: Sequence[Word], known: Mapping[str, Value]) -> bool | None:
    """The result of `[ A -gt B ]`, `[[ A == B ]]`, or a part of one."""
    inner = [word for word in words if word.written.text not in _BRACKETS]
    if len(inner) != len(_PAIR):
        return None
    sign = inner[1].written.text
    sides = [fields((inner[at],), known) for at in (0, 2)]
    if any(len(each) != 1 or not each[0].is_known for each in sides):
        return None
    left, right = (each[0].text for each in sides)
    if sign in _NUMBERS and left.isdecimal() and right.isdecimal():
        return bool(_NUMBERS[sign](int(left), int(right)))
    is_plain = sign in _TEXTS and not set("*?[") & set(right)
    return bool(_TEXTS[sign](left, right)) if is_plain else None


_PAIR: Final = ("left", "sign", "right")
