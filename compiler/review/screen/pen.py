"""What a screen is written with: colours, bars and widths, as far as the reader's terminal goes."""

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
    """Writes for one reader."""

    color: bool = False
    """Whether ANSI colours are understood."""
    drawing: bool = True
    """Whether there are characters beyond ASCII."""

    def paint(self, style: str, text: str) -> str:
        """A text in a style; as it is where there are no colours."""
        return f"{_STYLES[style]}{text}{_RESET}" if self.color and text.strip() else text

    def bar(self, start: float, share: float, width: int, *, free: bool = False) -> str:
        """A stretch of a line that is `width` cells long: `share` of it, from `start` on.

        Stretches that follow each other meet. One that is too short for a cell is still seen.
        """
        full, thin, empty = "█▏░" if self.drawing else "#|."
        first, last = (round(min(end, 1.0) * width) for end in (start, start + share))
        cells = (empty if free else full) * (last - first) or thin
        return " " * min(first, width - 1) + self.paint("dim" if free else "used", cells)

    def shortened(self, text: str, width: int) -> str:
        """A text in at most `width` columns, its end left out where it is longer."""
        if len(text) <= width:
            return text
        mark = "…" if self.drawing else "..."
        return text[: max(0, width - len(mark))].rstrip() + mark[:width]

    def wrapped(self, text: str, width: int, most: int) -> list[str]:
        """A text in at most so many lines; whole clauses where only its beginning has room."""
        lines = textwrap.wrap(text, width, break_on_hyphens=False) or [""]
        if len(lines) <= most:
            return lines
        beginning = text.partition("; ")[0]
        if len(beginning) < len(text):
            return self.wrapped(beginning, width, most)
        left = " ".join(lines[most - 1 :])
        return [*lines[: most - 1], self.shortened(left, width)]
