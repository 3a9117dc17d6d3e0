"""Where a value was written: files, lines and columns, counted from 1, with exclusive ends."""

import re
from typing import Final

from msgspec import Struct

from tunec.schemas.caches import cached

Path = tuple[str | int, ...]
"""A place in a document: mapping keys and list indices from the root."""

COMMAND_LINE: Final = "<command line>"
"""The file name for values given as arguments; its lines are the arguments in order."""

LAID_OVER: Final = "<overrides of the fleet>"
"""The file name for values that a fleet file sets in a spec."""

_BREAK: Final = re.compile("\r\n|[\r\n]")


class Span(Struct, frozen=True):
    """A section of a text file; lines and columns count from 1, the end is exclusive."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


def start_of(file: str) -> Span:
    """The place of a diagnostic that concerns a file as a whole."""
    return Span(file, 1, 1, 1, 1)


def dotted(path: Path) -> str:
    """Write a path as people type it: `method.lora.rank`, `data.files[0]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


@cached(16)
def lines_of(text: str) -> tuple[str, ...]:
    """Split a text into lines without their ends, as editors, `json` and SARIF (3.14.17) count.

    YAML 1.1 (5.4) has three more line breaks: `tunec.compiler.frontend.text.YamlLines`.
    """
    return tuple(_BREAK.split(text))


def line_starts(text: str) -> list[int]:
    """The index of the first character of each line."""
    return [0, *(match.end() for match in _BREAK.finditer(text))]


def text_of(span: Span, text: str) -> str:
    """The part of `text` that a span covers."""
    starts = [*line_starts(text), len(text)]
    first, last = (min(line, len(starts)) - 1 for line in (span.line, span.end_line))
    return text[starts[first] + span.column - 1 : starts[last] + span.end_column - 1]
