"""Notes and remedies in lines of a terminal's width, with nothing that is to be pasted broken."""

import re
import textwrap
from collections.abc import Iterator
from typing import Final

WIDTH: Final = 100
"""Columns of a line, as on the plan's screen."""

_KEPT: Final = re.compile(r"`[^`]*`|'[^']*'")
"""Code and quoted arguments, in which no line ends."""
_OPTION: Final = re.compile(r"(--\w+) ")
_NO_BREAK: Final = "\u00a0"


def paragraph_lines(text: str, width: int) -> Iterator[str]:
    """The lines of a text in so many columns, each further one indented like the one it goes on.

    A line of arguments goes on behind a backslash, as a shell wants it.
    """
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip(" ")))
        is_command = line.lstrip(" ").startswith("--")
        more, room = ("  ", width - 2) if is_command else ("", width)
        kept = _KEPT.sub(lambda found: found[0].replace(" ", _NO_BREAK), line)
        kept = _OPTION.sub(rf"\1{_NO_BREAK}", kept) if is_command else kept
        parts = textwrap.wrap(
            kept,
            room,
            subsequent_indent=indent + more,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for at, part in enumerate(parts or [""], 1):
            goes_on = is_command and at < len(parts)
            yield part.replace(_NO_BREAK, " ") + (" \\" if goes_on else "")
