"""A stretch of a source as it can be shown: on one line, printable, its cells counted."""

import unicodedata
from typing import Final

from msgspec import Struct

from tunec.schemas.source import Span, lines_of

_WIDTH: Final = 120
"""Cells of a shown line; longer ones are cut around the span."""
_KEPT_BEFORE: Final = 40
_TAB: Final = "    "


class Shown(Struct, frozen=True):
    """A line, and where in it the marks go, in cells."""

    text: str
    start: int
    width: int


def show(span: Span, source: str) -> Shown | None:
    """The first line of a span with its place; None where the source has no such line."""
    lines = lines_of(source)
    if not 1 <= span.line <= len(lines):
        return None
    line = lines[span.line - 1]
    start = min(span.column - 1, len(line))
    end = len(line) if span.end_line > span.line else min(span.end_column - 1, len(line))
    before, marked, after = line[:start], line[start:end], line[end:]
    return _cut(printable(before), printable(marked), printable(after))


def _cut(before: str, marked: str, after: str) -> Shown:
    """Leave out what is far from the marks."""
    if cells(before) + cells(marked) + cells(after) > _WIDTH:
        before = before if cells(before) <= _KEPT_BEFORE else "…" + before[-_KEPT_BEFORE:]
        marked = marked if cells(marked) <= _WIDTH else marked[: _WIDTH - 1] + "…"
        room = max(_WIDTH - cells(before) - cells(marked), _KEPT_BEFORE // 4)
        after = after if cells(after) <= room else after[:room] + "…"
    text = (before + marked + after).rstrip()
    return Shown(text, cells(before), max(cells(marked), 1))


def printable(text: str) -> str:
    """The text with what would move or colour a terminal made visible; tabs become blanks."""
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    if character == "\t":
        return _TAB
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        code = ord(character)
        return chr(0x2400 + code) if code < 0x20 else "\ufffd"
    return character


def cells(text: str) -> int:
    """How many cells of a terminal a text takes: wide characters take two, marks none."""
    if text.isascii():
        return len(text)
    return sum(_cells_of(character) for character in text)


def _cells_of(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
