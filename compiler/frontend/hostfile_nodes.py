"""The hostfile of the deepspeed launcher to nodes: one mapping of `host` and `slots` a line."""

import re
from typing import Final

from tunec.compiler.frontend.nodes import Node
from tunec.schemas.source import Span, lines_of

_ENTRY: Final = re.compile(r"(?P<host>\S+)\s+slots=(?P<slots>\d+)")
"""As deepspeed 0.14.5 to 0.19.8 launcher/runner.py `_parse_hostfile` looks for it; what follows
the number is not read."""
_MOST: Final = 10_000


def looks_like_hostfile(text: str) -> bool:
    """Whether some line is a host with slots, and no line is shell or YAML."""
    lines = [line for line in map(str.strip, text.splitlines()) if line and line[0] != "#"]
    if not 0 < len(lines) <= _MOST:
        return False
    is_entry = [bool(_ENTRY.match(line)) for line in lines]
    return any(is_entry) and all(
        entry or len(line.split()) <= 3 for entry, line in zip(is_entry, lines, strict=True)
    )


def read_hostfile(text: str, file: str) -> Node:
    """Every line that is neither empty nor a comment, in order.

    A line that the launcher reads has `host` and `slots`; any other has `host`, its first word, and
    `refused`, the whole line.
    """
    items = [
        _line(line, Span(file, at, 1, at, len(line) + 1))
        for at, line in enumerate(lines_of(text)[:_MOST], 1)
        if line.strip() and not line.strip().startswith("#")
    ]
    end = len(lines_of(text)) or 1
    return Node(Span(file, 1, 1, end, 1), items=tuple(items))


def _line(line: str, span: Span) -> Node:
    text = line.strip()
    begin = line.index(text)
    found = _ENTRY.match(text)
    if found is None:
        first = text.split()[0]
        host = Node(_part(span, begin, begin + len(first)), first)
        return Node(span, fields={"host": host, "refused": Node(span, text)})
    host, slots = (
        Node(_part(span, begin + found.start(name), begin + found.end(name)), value)
        for name, value in (("host", found["host"]), ("slots", int(found["slots"][:9])))
    )
    return Node(span, fields={"host": host, "slots": slots})


def _part(span: Span, start: int, end: int) -> Span:
    return Span(span.file, span.line, start + 1, span.line, end + 1)
