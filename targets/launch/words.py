"""Words of a shell line: where they stand, and what they are without their quotes."""

from collections.abc import Iterator
from dataclasses import dataclass

from tunec.schemas.source import Span

_BLANK = " \t"
_ENDS = ";&|\n"
_QUOTED_ESCAPES = '"\\$`'


@dataclass(frozen=True, slots=True)
class Word:
    """A word with quotes taken off; parameters (`$HOME`) are left as they are written."""

    text: str
    span: Span


class _Reader:
    """A place in a text that moves on character by character."""

    def __init__(self, text: str, file: str) -> None:
        self.text, self.file = text, file
        self.at, self.line, self.column = 0, 1, 1

    @property
    def next(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self) -> str:
        taken = self.next
        self.at += 1
        self.line, self.column = (
            (self.line + 1, 1) if taken == "\n" else (self.line, self.column + 1)
        )
        return taken

    def continues(self) -> bool:
        """Whether a backslash joins the next line to this one."""
        return self.text.startswith("\\\n", self.at)


def commands(text: str, file: str) -> Iterator[tuple[Word, ...]]:
    """The commands of a script in order, each as its words; comments are dropped.

    Knows quotes, escapes and continued lines. Redirections, loops and functions are words like any
    others: this reads scripts that export variables and start one program.
    """
    reader = _Reader(text, file)
    words: list[Word] = []
    while reader.next:
        if reader.continues():
            reader.take()
            reader.take()
        elif reader.next in _BLANK:
            reader.take()
        elif reader.next == "#":
            _skip_comment(reader)
        elif reader.next in _ENDS:
            reader.take()
            if words:
                yield tuple(words)
            words = []
        else:
            words.append(_word(reader))
    if words:
        yield tuple(words)


def _skip_comment(reader: _Reader) -> None:
    while reader.next and reader.next != "\n":
        reader.take()


def _word(reader: _Reader) -> Word:
    line, column, parts = reader.line, reader.column, []
    while reader.next and reader.next not in _BLANK + _ENDS and not reader.continues():
        if reader.next == "'":
            parts.append(_single(reader))
        elif reader.next == '"':
            parts.append(_double(reader))
        elif reader.text.startswith(("${", "$("), reader.at):
            parts.append(_parameter(reader))
        elif reader.next == "\\":
            reader.take()
            parts.append(reader.take())
        else:
            parts.append(reader.take())
    span = Span(reader.file, line, column, reader.line, reader.column)
    return Word("".join(parts), span)


def _single(reader: _Reader) -> str:
    reader.take()
    parts = []
    while reader.next and reader.next != "'":
        parts.append(reader.take())
    reader.take()
    return "".join(parts)


def _double(reader: _Reader) -> str:
    reader.take()
    parts = []
    while reader.next and reader.next != '"':
        if reader.text.startswith(("${", "$("), reader.at):
            parts.append(_parameter(reader))
            continue
        escapes = reader.next == "\\" and reader.text[reader.at + 1 : reader.at + 2]
        if escapes and escapes in _QUOTED_ESCAPES:
            reader.take()
        parts.append(reader.take())
    reader.take()
    return "".join(parts)


def _parameter(reader: _Reader) -> str:
    """`${NAME:-word}` or `$(command)` with all that it holds."""
    parts = [reader.take()]
    depth = 0
    while reader.next:
        depth += {"{": 1, "(": 1, "}": -1, ")": -1}.get(reader.next, 0)
        parts.append(reader.take())
        if depth == 0:
            break
    return "".join(parts)
