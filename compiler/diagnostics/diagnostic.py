"""The diagnostic: one fault, with its places, the sum behind its numbers, and a fix."""

from collections.abc import Iterable
from typing import Any, Literal

from msgspec import Struct

from tunec.schemas.source import Span

Severity = Literal["error", "warning", "note"]
Applicability = Literal["safe", "unsafe"]
"""`safe`: the run trains as before, or could not start, and the intent was obvious. `unsafe`:
training changes, or the intent is unclear, so a person decides."""


class Label(Struct, frozen=True):
    """A place in a file."""

    text: str
    span: Span | None = None
    path: str = ""
    """The key's dotted path in its file."""
    primary: bool = True


class Edit(Struct, frozen=True):
    """A replacement of a part of a file."""

    span: Span
    text: str


class Fix(Struct, frozen=True):
    """Edits that fix the fault, and whether they may be applied without review."""

    edits: tuple[Edit, ...]
    applicability: Applicability


class Term(Struct, frozen=True):
    """One line of a sum: `weights 14.96 GiB`."""

    name: str
    value: float
    unit: str = "bytes"


class Diagnostic(Struct, frozen=True):
    """One fault. `id` is a code (`E0301`) for hard errors, a name for lints."""

    id: str
    severity: Severity
    message: str
    """What is wrong; stands alone; lower case, no final period."""
    labels: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    help: str | None = None
    """How to fix it: the smallest change that works."""
    fix: Fix | None = None
    sum: tuple[Term, ...] = ()
    consequence: str = ""
    is_bug: bool = False
    """Whether tunec itself failed here, so that the result of its check is unknown."""
    """Of what lint finds: what happens to the run (`silent`, `init`); empty otherwise."""

    @property
    def primary(self) -> Label | None:
        """The first primary label, if any."""
        return next((label for label in self.labels if label.primary), None)

    @property
    def span(self) -> Span | None:
        """The place that people look at first, if it is in a file."""
        return self.primary.span if self.primary is not None else None

    @property
    def file(self) -> str:
        """The file of that place; empty if there is none."""
        return self.span.file if self.span is not None else ""

    def to_json(self) -> dict[str, Any]:
        """The diagnostic as the JSON that `--format json` prints."""
        return {
            "id": self.id,
            "severity": self.severity,
            "message": self.message,
            "labels": [_label_json(label) for label in self.labels],
            "notes": list(self.notes),
            "help": self.help,
            "fix": _fix_json(self.fix),
            "sum": [{"name": t.name, "value": t.value, "unit": t.unit} for t in self.sum],
            **({"consequence": self.consequence} if self.consequence else {}),
        }


def has_errors(found: Iterable[Diagnostic]) -> bool:
    """Whether there is any error; warnings and notes do not count."""
    return any(each.severity == "error" for each in found)


def _span_json(span: Span | None) -> dict[str, Any]:
    names = ("file", "line", "column", "end_line", "end_column")
    return {name: getattr(span, name, None) for name in names}


def _label_json(label: Label) -> dict[str, Any]:
    place = _span_json(label.span)
    return {**place, "text": label.text, "path": label.path, "primary": label.primary}


def _fix_json(fix: Fix | None) -> dict[str, Any] | None:
    if fix is None:
        return None
    edits = [{**_span_json(edit.span), "text": edit.text} for edit in fix.edits]
    return {"edits": edits, "applicability": fix.applicability}
