"""The pen that draws a screen: colours, bars and widths that the reader's terminal supports."""

import textwrap
from typing import Final

from msgspec import Struct

WIDTH: Final = 100
"""Columns of a screen."""
HEIGHT: Final = 40
"""Lines of a screen."""

_RESET: Final = "\x1b[0m"
_STYLES: Final = {
    "bold": "\x1b[1m",
    "dim": "\x1b[2m",
    "good": "\x1b[1;32m",
    "tight": "\x1b[1;33m",
    "bad": "\x1b[1;31m",
    "used": "\x1b[34m",
}


class Pen(Struct, frozen=True):
    """Formats text for one reader's terminal."""

    color: bool = False
    """Whether the terminal supports ANSI colours."""
    drawing: bool = True
    """Whether the terminal supports characters beyond ASCII."""

    def paint(self, style: str, text: str) -> str:
        """A text in a style; unchanged without colours."""
        return f"{_STYLES[style]}{text}{_RESET}" if self.color and text.strip() else text

    def bar(self, start: float, share: float, width: int, *, free: bool = False) -> str:
        """A part of a bar that is `width` cells long, from the share `start`, `share` of it long.

        Consecutive parts join without a gap. A part that is shorter than a cell is still visible.
        """
        full, thin, empty = "█▏░" if self.drawing else "#|."
        first, last = (round(min(end, 1.0) * width) for end in (start, start + share))
        cells = (empty if free else full) * (last - first) or thin
        return " " * min(first, width - 1) + self.paint("dim" if free else "used", cells)

    def shortened(self, text: str, width: int) -> str:
        """A text cut to at most `width` columns."""
        if len(text) <= width:
            return text
        mark = "…" if self.drawing else "..."
        return text[: max(0, width - len(mark))].rstrip() + mark[:width]

    def wrapped(self, text: str, width: int, most: int) -> list[str]:
        """A text in at most `most` lines, cut after its first clause or in its last line."""
        lines = textwrap.wrap(text, width, break_on_hyphens=False) or [""]
        if len(lines) <= most:
            return lines
        beginning = text.partition("; ")[0]
        if len(beginning) < len(text):
            return self.wrapped(beginning, width, most)
        left = " ".join(lines[most - 1 :])
        return [*lines[: most - 1], self.shortened(left, width)]
