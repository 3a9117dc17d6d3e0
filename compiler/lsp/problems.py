"""Diagnostics in the editor's form: by file, each with its page, other places and help."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from lsprotocol.types import (
    CodeDescription,
    Diagnostic,
    DiagnosticRelatedInformation,
    DiagnosticSeverity,
)

import tunec.compiler
from tunec.compiler.diagnostics import diagnostic as ours
from tunec.compiler.diagnostics.codes import known_ids
from tunec.compiler.diagnostics.terminal import printable_lines, sum_lines
from tunec.compiler.lints.index import is_rule, rule_page_path
from tunec.compiler.lsp.places import Text, location
from tunec.schemas.source import Span

_SEVERITIES: Final[Mapping[str, DiagnosticSeverity]] = {
    "error": DiagnosticSeverity.Error,
    "warning": DiagnosticSeverity.Warning,
    "note": DiagnosticSeverity.Information,
}
_ROOT: Final = Path(tunec.compiler.__file__).resolve().parent
"""The folder of the installed package that has the pages of codes and rules."""


def page_of(id: str) -> Path | None:
    """The page that explains a code or a rule; None for other ids, such as a policy's rule."""
    if is_rule(id):
        return _ROOT.parent / rule_page_path(id)
    return _ROOT / "diagnostics" / "pages" / f"{id}.md" if id in known_ids() else None


def problems(
    found: Iterable[ours.Diagnostic], texts: Mapping[str, Text]
) -> Iterator[tuple[str, Diagnostic]]:
    """Each diagnostic with the file that it is shown in; those without a place are left out."""
    for each in found:
        span = each.span
        if span is not None and span.file in texts:
            yield span.file, _problem(each, span, texts)


def _problem(found: ours.Diagnostic, span: Span, texts: Mapping[str, Text]) -> Diagnostic:
    page = page_of(found.id)
    return Diagnostic(
        texts[span.file].shown(span),
        printable_lines("\n".join(_message(found))),
        severity=_SEVERITIES[found.severity],
        code=found.id,
        code_description=CodeDescription(page.as_uri()) if page is not None else None,
        source="tunec",
        related_information=[*_related(found, texts)] or None,
    )


def _message(found: ours.Diagnostic) -> Iterator[str]:
    yield found.message
    label = found.primary.text if found.primary is not None else ""
    if label:
        yield label
    yield from (
        f"sum: {line}" if at == 0 else f"     {line}"
        for at, line in enumerate(sum_lines(found.sum))
    )
    yield from (f"note: {note}" for note in found.notes)
    if found.help:
        yield f"help: {found.help}"


def _related(
    found: ours.Diagnostic, texts: Mapping[str, Text]
) -> Iterator[DiagnosticRelatedInformation]:
    for label in found.labels:
        span = label.span
        if label is not found.primary and span is not None and span.file in texts:
            place = location(span.file, span, texts[span.file])
            yield DiagnosticRelatedInformation(place, label.text or "here")
