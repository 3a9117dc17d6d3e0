"""How the frontend reports an error: one place, a short label, facts, and one remedy."""

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
    """An error with its primary label, followed by `others`.

    Texts may quote a file's content, so they are shortened and made printable here.
    """
    labels = (Label(label, span, dotted(path)), *others)
    said = shortened(message, _MOST)
    remedy = shortened(help, _MOST) if help is not None else None
    facts = tuple(shortened(note, _MOST) for note in notes)
    return Diagnostic(code, "error", said, labels, facts, remedy, fix)


def beside(text: str, span: Span | None, path: Path = ()) -> Label:
    """A second place of an error."""
    return Label(text, span, dotted(path), primary=False)
