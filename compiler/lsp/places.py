"""Places as tunec counts them (lines and characters from 1) and as the protocol does (from 0).

The protocol counts columns in the units of an encoding on which client and server agree; a
character beyond the basic plane is two units of UTF-16.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

from lsprotocol.types import Location, Position, Range
from msgspec import Struct

from tunec.schemas.source import Span, line_starts, lines_of

_UNITS: Final[Mapping[str, Callable[[str], int]]] = {
    "utf-8": lambda character: len(character.encode("utf-8", "surrogatepass")),
    "utf-16": lambda character: 2 if ord(character) > 0xFFFF else 1,
    "utf-32": lambda _: 1,
}


class Text(Struct, frozen=True, dict=True):
    """A text that converts places to and from those of an editor."""

    text: str
    encoding: str = "utf-16"

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The lines without line breaks."""
        return lines_of(self.text)

    def position(self, line: int, column: int) -> Position:
        """The protocol's position of a line and column from 1, or else the nearest position."""
        if line > len(self.lines):
            return Position(len(self.lines), 0)
        before = self.lines[line - 1][: max(column - 1, 0)]
        return Position(line - 1, self._units(before))

    def range(self, span: Span) -> Range:
        """The protocol's range of a span."""
        start = self.position(span.line, span.column)
        return Range(start, self.position(span.end_line, span.end_column))

    def shown(self, span: Span) -> Range:
        """The range of a span that an editor underlines: its first line, and never empty."""
        line = self.lines[span.line - 1] if span.line <= len(self.lines) else ""
        end = span.end_column if span.end_line == span.line else len(line) + 1
        if end <= span.column:
            rest = line[span.column - 1 :]
            end = span.column + max(len(rest.split(" ", 1)[0]), 1)
        return self.range(Span(span.file, span.line, span.column, span.line, end))

    def place(self, position: Position) -> tuple[int, int]:
        """Line and column, from 1, of a protocol position."""
        if position.line >= len(self.lines):
            return len(self.lines), len(self.lines[-1]) + 1
        line, units, column = self.lines[position.line], 0, 0
        while column < len(line) and units < position.character:
            units += self._units(line[column])
            column += 1
        return position.line + 1, column + 1

    def offset(self, line: int, column: int) -> int:
        """The index in the text of a line and column from 1."""
        return self._starts[line - 1] + column - 1

    @property
    def whole(self) -> Range:
        """The range of the whole text."""
        return Range(Position(0, 0), self.position(len(self.lines), len(self.lines[-1]) + 1))

    @cached_property
    def _starts(self) -> list[int]:
        return line_starts(self.text)

    def _units(self, text: str) -> int:
        if self.encoding == "utf-32" or (text.isascii()):
            return len(text)
        return sum(map(_UNITS[self.encoding], text))


def holds(span: Span, line: int, column: int) -> bool:
    """Whether a place is inside a span, including its end."""
    return (span.line, span.column) <= (line, column) <= (span.end_line, span.end_column)


def uri_of(file: str | Path) -> str:
    """The URI of a file, whose path may be relative to the working directory."""
    return Path(file).absolute().as_uri()


def location(file: str | Path, span: Span | None = None, text: Text | None = None) -> Location:
    """A place in a file; the file's start if no span or text is given."""
    start = Position(0, 0)
    found = Range(start, start) if span is None or text is None else text.range(span)
    return Location(uri_of(file), found)
