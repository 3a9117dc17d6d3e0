"""Diagnostics as workflow commands, which GitHub Actions shows beside the lines of a change.

docs.github.com, "Workflow commands for GitHub Actions", error, warning and notice messages; the
escapes are those of actions/toolkit, packages/core/src/command.ts, escapeData and escapeProperty.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Severity
from tunec.compiler.diagnostics.sums import sum_lines
from tunec.schemas.source import Span

_COMMANDS: Final[Mapping[Severity, str]] = {
    "error": "error",
    "warning": "warning",
    "note": "notice",
}


def render(diagnostic: Diagnostic) -> str:
    """One diagnostic as one line, with a line feed at its end."""
    span = diagnostic.span
    fields = {**_place(span), "title": diagnostic.id}
    properties = ",".join(f"{name}={_property(value)}" for name, value in fields.items())
    return f"::{_COMMANDS[diagnostic.severity]} {properties}::{_data(_text(diagnostic))}\n"


def render_all(diagnostics: Iterable[Diagnostic]) -> str:
    """All diagnostics, one a line."""
    return "".join(render(each) for each in diagnostics)


def _place(span: Span | None) -> dict[str, str]:
    """File and lines; columns only within one line, as GitHub has it."""
    if span is None:
        return {}
    found = {"file": span.file, "line": str(span.line), "endLine": str(span.end_line)}
    if span.line == span.end_line:
        last = max(span.end_column - 1, span.column)
        found |= {"col": str(span.column), "endColumn": str(last)}
    return found


def _text(diagnostic: Diagnostic) -> str:
    parts = [diagnostic.message, *sum_lines(diagnostic.sum)]
    parts += [f"note: {note}" for note in diagnostic.notes]
    if diagnostic.help:
        parts.append(f"help: {diagnostic.help}")
    return "\n".join(parts)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
