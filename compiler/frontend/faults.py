"""How the frontend writes a hard error: one place, a short label, facts, one remedy."""

from collections.abc import Iterable

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Fix, Label
from tunec.schemas.source import Path, Span, dotted


def error(
    code: str,
    message: str,
    span: Span | None,
    *,
    label: str = "",
    path: Path = (),
    others: Iterable[Label] = (),
    notes: Iterable[str] = (),
    help: str | None = None,
    fix: Fix | None = None,
) -> Diagnostic:
    """A hard error with its primary label first and `others` after it."""
    primary = Label(label, span, dotted(path))
    return Diagnostic(code, "error", message, (primary, *others), tuple(notes), help, fix)


def beside(text: str, span: Span | None, path: Path = ()) -> Label:
    """A second place that an error speaks of."""
    return Label(text, span, dotted(path), primary=False)
