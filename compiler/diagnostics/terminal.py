"""Diagnostics for people: the line, a mark under what is wrong, the facts, the remedy."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label, Severity
from tunec.compiler.diagnostics.paragraphs import WIDTH, paragraph_lines
from tunec.compiler.diagnostics.source_lines import printable, show
from tunec.compiler.diagnostics.sums import sum_lines
from tunec.schemas.source import Span

_RESET: Final = "\x1b[0m"
_BOLD: Final = "\x1b[1m"
_BLUE: Final = "\x1b[1;34m"
_STYLES: Final[Mapping[Severity, str]] = {
    "error": "\x1b[1;31m",
    "warning": "\x1b[1;33m",
    "note": "\x1b[1;36m",
}


def render(diagnostic: Diagnostic, sources: Mapping[str, str], *, color: bool = False) -> str:
    """One diagnostic as text, with a line feed at its end.

    `sources` holds texts by the file names of spans; a place in any other file is named without its
    line. Nothing of a file reaches the terminal as a control character. `color` adds ANSI colours.
    """
    return "\n".join(_lines(_Painter(diagnostic.severity, color), diagnostic, sources)) + "\n"


def render_all(
    diagnostics: Iterable[Diagnostic], sources: Mapping[str, str], *, color: bool = False
) -> str:
    """Diagnostics one after the other, and how many there are."""
    every = list(diagnostics)
    parts = [render(each, sources, color=color) for each in every]
    return "\n".join([*parts, f"{summary(every)}\n"]) if every else ""


def summary(diagnostics: Iterable[Diagnostic]) -> str:
    """How many there are of each severity: `2 errors, 1 warning`."""
    severities = [each.severity for each in diagnostics]
    counts = {name: severities.count(name) for name in _STYLES}
    return ", ".join(f"{n} {name}{'s' * (n != 1)}" for name, n in counts.items() if n)


class _Painter(Struct, frozen=True):
    severity: Severity
    color: bool

    def main(self, text: str) -> str:
        """In the colour of the severity."""
        return self._in(_STYLES[self.severity], text)

    def frame(self, text: str) -> str:
        """What stands around the source: numbers, bars, arrows."""
        return self._in(_BLUE, text)

    def bold(self, text: str) -> str:
        """The message."""
        return self._in(_BOLD, text)

    def _in(self, style: str, text: str) -> str:
        return f"{style}{text}{_RESET}" if self.color and text else text


def _lines(painter: _Painter, diagnostic: Diagnostic, sources: Mapping[str, str]) -> Iterator[str]:
    head = painter.main(f"{diagnostic.severity}[{printable(diagnostic.id)}]")
    yield f"{head}{painter.bold(': ' + printable(diagnostic.message))}"
    margin = _margin(diagnostic)
    yield from _places(painter, diagnostic, sources, margin)
    bar = " " * margin
    more = diagnostic.sum or diagnostic.notes or diagnostic.help
    if more and _has_place(diagnostic):
        yield f"{bar} {painter.frame('│')}"
    for at, line in enumerate(sum_lines(diagnostic.sum)):
        lead = "= sum: " if at == 0 else "       "
        yield f"{bar} {painter.frame(lead)}{printable(line)}"
    for note in diagnostic.notes:
        yield from _paragraph(painter, bar, "note", note)
    if diagnostic.help:
        yield from _paragraph(painter, bar, "help", diagnostic.help)


def _paragraph(painter: _Painter, bar: str, name: str, text: str) -> Iterator[str]:
    before = len(f"{bar} = {name}: ")
    first, *rest = paragraph_lines(text, WIDTH - before)
    yield f"{bar} {painter.frame('=')} {painter.bold(name + ':')} {printable(first)}"
    for line in rest:
        yield f"{' ' * before}{printable(line)}"


def _has_place(diagnostic: Diagnostic) -> bool:
    return any(label.span is not None for label in diagnostic.labels)


def _margin(diagnostic: Diagnostic) -> int:
    """Cells of the widest line number."""
    numbers = [label.span.line for label in diagnostic.labels if label.span is not None]
    return len(str(max(numbers))) if numbers else 1


def _places(
    painter: _Painter, diagnostic: Diagnostic, sources: Mapping[str, str], margin: int
) -> Iterator[str]:
    """Each file with its labels; the primary label's file first, lines in order."""
    placed = [(each, each.span) for each in diagnostic.labels if each.span is not None]
    files = dict.fromkeys(span.file for _, span in placed)
    for at, file in enumerate(files):
        own = [(label, span) for label, span in placed if span.file == file]
        arrow = "-->" if at == 0 else ":::"
        where = own[0][1]
        place = f"{file}:{where.line}:{where.column}"
        yield f"{' ' * margin}{painter.frame(arrow)} {printable(place)}"
        yield from _snippets(painter, own, sources.get(file), margin)


def _snippets(
    painter: _Painter, own: list[tuple[Label, Span]], source: str | None, margin: int
) -> Iterator[str]:
    bar = f"{' ' * margin} {painter.frame('│')}"
    if source is None:
        yield from (f"{bar} {printable(label.text)}" for label, _ in own if label.text)
        return
    yield bar
    last, text = 0, ""
    for label, span in sorted(own, key=lambda each: (each[1].line, each[1].column)):
        shown = show(span, source)
        if shown is None:
            continue
        if last and span.line > last + 1:
            yield painter.frame("...")
        if (span.line, shown.text) != (last, text):
            number = painter.frame(f"{span.line:>{margin}} │")
            yield f"{number} {shown.text}".rstrip()
        last, text = span.line, shown.text
        yield f"{bar} {' ' * shown.start}{_marks(painter, label, shown.width)}"


def _marks(painter: _Painter, label: Label, width: int) -> str:
    marks = ("^" if label.primary else "-") * width
    paint = painter.main if label.primary else painter.frame
    return paint(f"{marks} {printable(label.text)}".rstrip())
