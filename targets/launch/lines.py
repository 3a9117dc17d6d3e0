"""The text of launch scripts, line by line: how the shell reads it apart from commands."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.frontend.shell_words import Command, commands, whole
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.schemas.source import Span

ASSIGNED: Final = re.compile(r"([A-Za-z_]\w*)\+?=")
"""The beginning of a word that sets a variable."""


def scripts(run: LintContext) -> Iterator[Document]:
    """One document of each script that starts a run."""
    seen = set[str]()
    for document in run.of("launch"):
        if document.format == "shell" and document.name not in seen:
            seen.add(document.name)
            if "<<" in document.text or not _TABLE.search(document.text):
                yield document


_TABLE: Final = re.compile(r"(?m)^\|(?:[ :]*-+[ :]*\|)+[ \r]*$")
"""The line below a table's head, in notes that are called a script."""


def lines(document: Document) -> Iterator[tuple[int, str]]:
    """Its lines by number, from 1."""
    return enumerate(document.text.split("\n"), 1)


def behind(document: Document, span: Span) -> str:
    """The rest of a line from a place on; empty if the text has no such line."""
    found = document.text.split("\n")[span.line - 1 : span.line]
    return found[0][span.column - 1 :] if found else ""


def commands_of(document: Document) -> tuple[Command, ...]:
    """The document's commands, divided as by the shell."""
    return commands(whole(document.text))


def at_offset(document: Document, start: int, length: int, text: str = "") -> Label:
    """A label for a part of the text within one line."""
    before = document.text[:start]
    line, column = before.count("\n") + 1, start - (before.rfind("\n") + 1) + 1
    return Label(text, Span(document.name, line, column, line, column + length), "", True)


def at_line(
    document: Document, line: int, start: int, length: int, text: str = "", *, primary: bool = True
) -> Label:
    """A label for a part of a line; `start` counts from 0."""
    span = Span(document.name, line, start + 1, line, start + 1 + max(length, 1))
    return Label(text, span, "", primary)
