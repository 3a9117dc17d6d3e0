"""How the frontend writes a hard error: one place, a short label, facts, one remedy."""

from collections.abc import Iterable
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Fix, Label
from tunec.compiler.diagnostics.wording import shortened
from tunec.schemas.source import Path, Span, dotted

_MOST: Final = 500


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
    """A hard error with its primary label first and `others` after it.

    What a file says may stand in the texts: they are cut and made printable here.
    """
    labels = (Label(label, span, dotted(path)), *others)
    said = shortened(message, _MOST)
    remedy = shortened(help, _MOST) if help is not None else None
    facts = tuple(shortened(note, _MOST) for note in notes)
    return Diagnostic(code, "error", said, labels, facts, remedy, fix)


def beside(text: str, span: Span | None, path: Path = ()) -> Label:
    """A second place that an error points at."""
    return Label(text, span, dotted(path), primary=False)
