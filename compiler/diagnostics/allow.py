"""Suppression: diagnostics that people accept, with the reason."""

from collections.abc import Iterable

from msgspec import Struct

from tunec.compiler.diagnostics.codes import is_code
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.schemas.source import Span


class Allowance(Struct, frozen=True):
    """A diagnostic that is accepted: in a whole spec, or in one line of a file."""

    name: str
    reason: str
    span: Span | None = None
    """The place of the allowance."""
    line: int | None = None
    """The line of that file to which it applies; None: everywhere."""

    def covers(self, diagnostic: Diagnostic) -> bool:
        """Whether this allows the diagnostic; never true for a hard error."""
        if is_code(diagnostic.id) or diagnostic.id != self.name:
            return False
        if self.line is None:
            return True
        return any(label.primary and self._holds(label.span) for label in diagnostic.labels)

    def _holds(self, span: Span | None) -> bool:
        if span is None or self.span is None or self.line is None:
            return False
        return span.file == self.span.file and span.line <= self.line <= span.end_line


class Suppressed(Struct, frozen=True):
    """The remaining diagnostics, and the allowances that matched none."""

    kept: tuple[Diagnostic, ...]
    unused: tuple[Allowance, ...]


def suppress(diagnostics: Iterable[Diagnostic], allowances: Iterable[Allowance]) -> Suppressed:
    """Leave out allowed diagnostics. Labels need their spans; errors always remain."""
    found, allowed = tuple(diagnostics), tuple(allowances)
    named: dict[str, list[Allowance]] = {}
    for one in allowed:
        named.setdefault(one.name, []).append(one)
    told: dict[str, list[Diagnostic]] = {}
    for each in found:
        told.setdefault(each.id, []).append(each)
    kept = (e for e in found if not any(one.covers(e) for one in named.get(e.id, ())))
    unused = (one for one in allowed if not any(map(one.covers, told.get(one.name, ()))))
    return Suppressed(tuple(kept), tuple(unused))
