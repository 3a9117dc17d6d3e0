"""What could be run next, as it can be pasted."""

from collections.abc import Iterator, Sequence
from shlex import join, quote
from typing import Final

from msgspec import Struct

from tunec.compiler.review.screen.pen import WIDTH, Pen

_LABEL: Final = 8
"""Columns of the word before the commands."""
_WIDTH: Final = WIDTH - _LABEL
_LONGEST: Final = 4
"""Lines of the first command; the others have one each."""


class Command(Struct, frozen=True):
    """A command line in words."""

    begins: tuple[str, ...]
    given: tuple[str, ...] = ()
    """The arguments with which the plan was asked for."""
    ends: tuple[str, ...] = ()


def command_lines(commands: Sequence[Command], pen: Pen) -> Iterator[str]:
    """The commands below each other; the first whole if it can be."""
    for at, command in enumerate(commands):
        for number, line in enumerate(_lines(command, 1 if at else _LONGEST, pen)):
            label = "" if at or number else "next"
            yield f"{pen.paint('bold', f'{label:<{_LABEL}}')}{line}"


def _lines(command: Command, most: int, pen: Pen) -> list[str]:
    """A command in so many lines; where it is longer, dots stand for what was given."""
    lines = _broken((*command.begins, *command.given, *command.ends))
    if len(lines) <= most and all(len(line) <= _WIDTH for line in lines):
        return lines
    dots = "..." if command.given else ""
    short = " ".join(filter(None, (join(command.begins), dots, join(command.ends))))
    return [pen.shortened(short, _WIDTH)]


def _broken(words: Sequence[str]) -> list[str]:
    """A command line, broken between its arguments where it is long."""
    lines: list[str] = []
    for word in map(quote, words):
        if lines and len(lines[-1]) + len(word) + 3 <= _WIDTH:
            lines[-1] += f" {word}"
        else:
            lines.append(f"  {word}" if lines else word)
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]
