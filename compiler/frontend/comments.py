"""`# tunec: allow(name) reason`: comments in a YAML file that accept diagnostics."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from tunec.compiler.diagnostics.allow import Allowance
from tunec.compiler.frontend.nodes import Node, walk
from tunec.schemas.source import Span, lines_of

_COMMENT: Final = re.compile(
    r"(?:^|(?<=\s))#\s*tunec:\s*allow\(\s*(?P<name>[\w-]+)\s*\)[\s:,]*(?P<reason>.*?)\s*$"
)
_EMPTY: Final = re.compile(r"\s*(?:#.*)?$")


def allowances(text: str, file: str, tree: Node | None) -> Iterator[Allowance]:
    """The allowances in a YAML text. A comment covers its own line or, alone, the next.

    A reason that is missing is an empty text; the caller reports it.
    """
    if "tunec:" not in text:
        return
    leaves = _leaves(tree) if tree else []
    lines = lines_of(text)
    for at, line in enumerate(lines):
        found = _COMMENT.search(line)
        if found is None or any(_holds(span, at + 1, found.start() + 1) for span in leaves):
            continue
        span = Span(file, at + 1, found.start() + 1, at + 1, found.end() + 1)
        yield Allowance(found["name"], found["reason"], span, _speaks_of(lines, at) + 1)


def _speaks_of(lines: Sequence[str], at: int) -> int:
    """The line, from 0, that a comment in line `at` covers."""
    if lines[at].lstrip().startswith("#"):
        return next((n for n in range(at, len(lines)) if not _EMPTY.match(lines[n])), at)
    return at


def _leaves(tree: Node) -> list[Span]:
    """The places of texts, including keys, in which a `#` begins no comment."""
    every = list(walk(tree))
    keys = [node.key_span for _, node in every if node.key_span is not None]
    return [*keys, *(node.span for _, node in every if node.is_leaf)]


def _holds(span: Span, line: int, column: int) -> bool:
    return (span.line, span.column) <= (line, column) < (span.end_line, span.end_column)
