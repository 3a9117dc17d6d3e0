"""Where a value was written: files, lines and columns, 1-based, ends exclusive."""

from dataclasses import dataclass

Path = tuple[str | int, ...]
"""A place in a document: mapping keys and list indices from the root."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a text file; lines and columns count from 1, the end is exclusive."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


def dotted(path: Path) -> str:
    """Write a path as people type it: `method.lora.rank`, `data.files[0]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
