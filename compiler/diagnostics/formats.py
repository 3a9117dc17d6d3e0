"""Diagnostics for programs: JSON, GitHub's workflow commands, and SARIF 2.1.0.

docs.github.com, "Workflow commands for GitHub Actions", error, warning and notice messages; the
escapes are those of actions/toolkit, packages/core/src/command.ts, escapeData and escapeProperty.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote

from tunec.compiler.diagnostics.codes import known_codes, page, title
from tunec.compiler.diagnostics.diagnostic import Diagnostic, Edit, Fix, Label, Severity
from tunec.compiler.diagnostics.terminal import printable_lines, sum_lines
from tunec.compiler.diagnostics.wording import json_text
from tunec.schemas.source import Span


def render_json(diagnostics: Iterable[Diagnostic]) -> str:
    """All diagnostics as one JSON array, indented."""
    found = [each.to_json() for each in diagnostics]
    return json_text(found) + "\n"


_COMMANDS: Final[Mapping[Severity, str]] = {
    "error": "error",
    "warning": "warning",
    "note": "notice",
}


def render_command(diagnostic: Diagnostic) -> str:
    """One diagnostic as one line, with a line feed at its end."""
    span = diagnostic.span
    fields = {**_place(span), "title": diagnostic.id}
    properties = ",".join(f"{name}={_property(value)}" for name, value in fields.items())
    return f"::{_COMMANDS[diagnostic.severity]} {properties}::{_data(_text(diagnostic))}\n"


def render_github(diagnostics: Iterable[Diagnostic]) -> str:
    """All diagnostics, one a line."""
    return "".join(render_command(each) for each in diagnostics)


def _place(span: Span | None) -> dict[str, str]:
    """File and lines; columns only within one line, as GitHub requires."""
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
    still = "\r".join(map(printable_lines, text.split("\r")))
    return still.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


SCHEMA: Final = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)


_NO_PAGES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType({})
Pages = Mapping[str, tuple[str, str]]
"""Title and page of diagnostics without a code, by name."""


def render_sarif(diagnostics: Iterable[Diagnostic], version: str, pages: Pages = _NO_PAGES) -> str:
    """All diagnostics as one SARIF log; `version` is tunec's own, `pages` are those of lints."""
    return json_text(sarif_log(diagnostics, version, pages)) + "\n"


def sarif_log(
    diagnostics: Iterable[Diagnostic], version: str, pages: Pages = _NO_PAGES
) -> dict[str, Any]:
    """The log as data."""
    found = list(diagnostics)
    ids = sorted({each.id for each in found})
    driver = {"name": "tunec", "version": version, "rules": [_rule(each, pages) for each in ids]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(each, ids) for each in found],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(id: str, pages: Pages) -> dict[str, Any]:
    if id not in known_codes() and id not in pages:
        return {"id": id}
    name, text = pages[id] if id in pages else (title(id), page(id))
    return {"id": id, "shortDescription": {"text": name}, "help": {"text": text, "markdown": text}}


def _result(diagnostic: Diagnostic, ids: Sequence[str]) -> dict[str, Any]:
    first = diagnostic.primary
    others = [each for each in diagnostic.labels if each is not first]
    places = {
        "locations": [_location(first)] if first else [],
        "relatedLocations": [_location(each) for each in others],
        "fixes": _fixes(diagnostic.fix, diagnostic.help),
    }
    return {
        "ruleId": diagnostic.id,
        "ruleIndex": ids.index(diagnostic.id),
        "level": diagnostic.severity,
        "message": {"text": _text(diagnostic)},
        **{name: value for name, value in places.items() if value},
        **({"properties": {"consequence": told}} if (told := diagnostic.consequence) else {}),
    }


def _location(label: Label) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if label.span is not None:
        found["physicalLocation"] = {
            "artifactLocation": _artifact(label.span.file),
            "region": _region(label.span),
        }
    if label.path:
        found["logicalLocations"] = [{"fullyQualifiedName": label.path, "kind": "member"}]
    if label.text:
        found["message"] = {"text": label.text}
    return found


def _artifact(file: str) -> dict[str, Any]:
    """A relative reference, or a file URI for an absolute path (3.4.3)."""
    path = PurePath(file)
    return {"uri": path.as_uri() if path.is_absolute() else quote(path.as_posix())}


def _region(span: Span) -> dict[str, int]:
    return {
        "startLine": span.line,
        "startColumn": span.column,
        "endLine": span.end_line,
        "endColumn": span.end_column,
    }


def _fixes(fix: Fix | None, text: str | None) -> list[Mapping[str, Any]]:
    if fix is None:
        return []
    files = dict.fromkeys(edit.span.file for edit in fix.edits)
    changes = [
        {
            "artifactLocation": _artifact(file),
            "replacements": [_replacement(each) for each in fix.edits if each.span.file == file],
        }
        for file in files
    ]
    return [{"description": {"text": text or "apply the fix"}, "artifactChanges": changes}]


def _replacement(edit: Edit) -> dict[str, Any]:
    return {"deletedRegion": _region(edit.span), "insertedContent": {"text": edit.text}}
