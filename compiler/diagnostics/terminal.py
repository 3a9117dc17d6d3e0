"""Diagnostics in the terminal: lines of the source, tables of numbers, notes in paragraphs."""

import re
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label, Severity, Term
from tunec.schemas.frozen import replace
from tunec.schemas.source import Span, lines_of
from tunec.schemas.units import GIB, KIB, MIB

_WIDTH: Final = 120
"""Columns of a shown line; longer lines are cut around the span."""
_KEPT_BEFORE: Final = 40
_READ: Final = 2 * _WIDTH
"""Characters that are examined on each side, since a file may be one long line with many faults."""
_TAB: Final = "    "


class MarkedLine(Struct, frozen=True):
    """A line, and the columns of the marks below it."""

    text: str
    start: int
    width: int


def show(span: Span, source: str) -> MarkedLine | None:
    """The first line of a span with its place; None if the source has no such line."""
    lines = lines_of(source)
    if not 1 <= span.line <= len(lines):
        return None
    line = lines[span.line - 1]
    start = min(span.column - 1, len(line))
    end = len(line) if span.end_line > span.line else min(span.end_column - 1, len(line))
    before = line[max(start - _READ, 0) : start]
    marked, after = line[start : min(end, start + _READ)], line[end : end + _READ]
    return _cut(printable(before), printable(marked), printable(after))


def _cut(before: str, marked: str, after: str) -> MarkedLine:
    """Leave out what is far from the marks."""
    if cells(before) + cells(marked) + cells(after) > _WIDTH:
        before = before if cells(before) <= _KEPT_BEFORE else "…" + before[-_KEPT_BEFORE:]
        marked = marked if cells(marked) <= _WIDTH else marked[: _WIDTH - 1] + "…"
        room = max(_WIDTH - cells(before) - cells(marked), _KEPT_BEFORE // 4)
        after = after if cells(after) <= room else after[:room] + "…"
    text = (before + marked + after).rstrip()
    return MarkedLine(text, cells(before), max(cells(marked), 1))


def printable(text: str) -> str:
    """The text with control characters made visible; tabs become blanks."""
    return "".join(_visible(character) for character in text)


def printable_lines(text: str) -> str:
    """Several lines with control characters made visible."""
    if text.isprintable():
        return text
    return "\n".join(map(printable, text.split("\n")))


def _visible(character: str) -> str:
    if character == "\t":
        return _TAB
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        code = ord(character)
        return chr(0x2400 + code) if code < 0x20 else "\ufffd"
    return character


def cells(text: str) -> int:
    """How many cells of a terminal a text takes: wide characters take two, marks none."""
    if text.isascii():
        return len(text)
    return sum(_cells_of(character) for character in text)


def _cells_of(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


_BYTE_SCALES: Final = (("GiB", GIB, 2), ("MiB", MIB, 1), ("KiB", KIB, 1), ("B", 1, 0))


def sum_lines(terms: Sequence[Term]) -> Iterator[str]:
    """The lines of the table; the total of bytes: other numbers stand there to be compared."""
    rows = [(term.name, *_amount(term, terms)) for term in terms]
    if len(terms) > 1 and all(term.unit == "bytes" for term in terms):
        total = Term("total", sum(term.value for term in terms))
        rows.append((total.name, *_amount(total, terms)))
    names = max((len(name) for name, _, _ in rows), default=0)
    numbers = max((len(number) for _, number, _ in rows), default=0)
    for at, (name, number, unit) in enumerate(rows):
        if at == len(terms):
            yield "─" * (names + 2 + numbers)
        yield f"{name:<{names}}  {number:>{numbers}} {unit}".rstrip()


def _amount(term: Term, terms: Sequence[Term]) -> tuple[str, str]:
    """A number and its unit; bytes of one table all have the unit of the largest."""
    if term.unit != "bytes":
        return f"{term.value:,.6g}", term.unit
    largest = max(abs(each.value) for each in terms if each.unit == "bytes")
    unit, size, digits = next(
        (scale for scale in _BYTE_SCALES if largest >= scale[1]), _BYTE_SCALES[-1]
    )
    return f"{term.value / size:,.{digits}f}", unit


WIDTH: Final = 100
"""Columns of a line, as on the plan's screen."""

_KEPT: Final = re.compile(r"`[^`]*`|'[^']*'")
"""Code and quoted arguments, in which no line ends."""
_OPTION: Final = re.compile(r"(--\w+) ")
_NO_BREAK: Final = "\u00a0"


def paragraph_lines(text: str, width: int) -> Iterator[str]:
    """The lines of a text in so many columns, each further one indented like the one it goes on.

    A line of arguments goes on behind a backslash, as a shell wants it.
    """
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip(" ")))
        is_command = line.lstrip(" ").startswith("--")
        more, room = ("  ", width - 2) if is_command else ("", width)
        kept = _KEPT.sub(lambda found: found[0].replace(" ", _NO_BREAK), line)
        kept = _OPTION.sub(rf"\1{_NO_BREAK}", kept) if is_command else kept
        parts = textwrap.wrap(
            kept,
            room,
            subsequent_indent=indent + more,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for at, part in enumerate(parts or [""], 1):
            goes_on = is_command and at < len(parts)
            yield part.replace(_NO_BREAK, " ") + (" \\" if goes_on else "")


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
    diagnostics: Iterable[Diagnostic],
    sources: Mapping[str, str],
    *,
    color: bool = False,
    folds: bool = False,
) -> str:
    """Diagnostics one after the other, and how many there are.

    `folds`: those that differ in their places alone are shown once, with the other places.
    """
    every = list(diagnostics)
    parts = [render(each, sources, color=color) for each in (_folded(every) if folds else every)]
    return "\n".join([*parts, f"{summary(every)}\n"]) if every else ""


_MOST_PLACES: Final = 5


def _folded(diagnostics: Sequence[Diagnostic]) -> Iterator[Diagnostic]:
    """The first of the diagnostics that say the same, which names the places of the others."""
    alike: dict[tuple[object, ...], list[Diagnostic]] = {}
    for each in diagnostics:
        texts = tuple((label.text, label.path) for label in each.labels)
        said = (each.id, each.severity, each.message, texts, each.notes, each.help, each.sum)
        alike.setdefault(said if _has_place(each) else (id(each),), []).append(each)
    for first, *rest in alike.values():
        spans = [each.span for each in rest if each.span is not None]
        places = [f"{span.file}:{span.line}" for span in spans]
        more = len(places) - _MOST_PLACES
        named = [*places[:_MOST_PLACES], *([f"and {more} more"] if more > 0 else [])]
        told = f"the same at {', '.join(named)}"
        yield replace(first, notes=(*first.notes, told)) if places else first


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
        is_of_whole = all(_is_of_whole(label, span) for label, span in own)
        yield from _snippets(painter, own, None if is_of_whole else sources.get(file), margin)


def _is_of_whole(label: Label, span: Span) -> bool:
    """Whether a label is about a file as a whole: its first line would show nothing."""
    start = (span.line, span.column)
    return not label.text and start == (1, 1) == (span.end_line, span.end_column)


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
