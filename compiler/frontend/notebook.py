"""A Jupyter notebook to the scripts of its cells, each line with its place in the file.

read_notebook(text, file) -> (notebook, faults)

The code cells are one Python script, since each continues with the names of those before; their
shell commands (`!command`, `%%bash`) are a shell script with lines at the same places. Nothing is
run. nbformat 5.10 v4/nbformat.v4.schema.json: cells with their type and source; IPython 9
core/inputtransformer2.py and core/magics/script.py: `!`, `%`, `%%bash`.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from json import JSONDecoder
from operator import itemgetter
from typing import Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend.nodes import Node
from tunec.compiler.frontend.parse import parse
from tunec.compiler.frontend.text import ENDING, Origin
from tunec.schemas.caches import cached
from tunec.schemas.source import Span, lines_of

_UNREAD: Final = re.compile(r'"(?:outputs|attachments|widgets)"\s*:\s*(?=[\[{])')
"""Images and other results; JSON escapes quotes within a text, so this is always a key."""
_ESCAPE: Final = re.compile(
    r"\\(?:u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|u[0-9a-fA-F]{4}|.)", re.DOTALL
)
"""One character, which may be a pair of surrogates."""
_CELL: Final = re.compile(r"%%(?P<magic>[\w!]+)")
_SHELLS: Final = ("bash", "sh", "script", "!", "sx", "system")
_OF_PYTHON: Final = ("capture", "time", "timeit", "prun", "python", "python3", "px")
"""Magics of a whole cell that run it as Python; cells of others are another language."""
_SHELL: Final = re.compile(r"\s*(?:!!?|%(?:sx|system)\s|%(?=(?:pip|conda|uv)\s))")
_ASSIGNED: Final = re.compile(r"(?P<names>\s*[\w, ]+=)\s*(?:!|%[a-z])")
_MAGIC: Final = re.compile(
    r"\s*(?:%[a-zA-Z]|\?)|[^#]*\w\?\??\s*\Z"
    r"|(?:cd|ls|ll|cat|cp|mv|rm|mkdir|rmdir|less|man|more|pip|conda)(?:\s+[^\s=(\[.].*|\s+\.{1,2}(?:/.*)?|\s*)\Z"
)
"""`%matplotlib inline`, `?name`, `name?`, but not a comment that asks something; and lines that
IPython reads as a magic without its sign (core/prefilter.py `AutoMagicChecker`)."""


class Line(Struct, frozen=True):
    """One line of a cell."""

    text: str
    places: tuple[tuple[int, int], ...]
    """Line and column in the file of each character, and of the end of the last one."""
    cell: int
    """The cell's number from 1, counting cells of all types."""
    number: int
    """The line's number in the cell, from 1."""


class CellLines(Origin, frozen=True):
    """The origin of a script in the cells of a notebook."""

    lines: tuple[Line, ...] = ()

    def span(self, start: tuple[int, int], end: tuple[int, int]) -> Span:
        """The span between two places of the script, in the notebook's file."""
        return Span(self.file, *self._in_file(start), *self._in_file(end))

    def _in_file(self, place: tuple[int, int]) -> tuple[int, int]:
        line, column = place
        if not self.lines:
            return 1, 1
        places = self.lines[min(line, len(self.lines) - 1)].places
        return places[min(column, len(places) - 1)]


class Notebook(Struct, frozen=True):
    """The scripts of a notebook's cells."""

    origin: CellLines
    python: str
    shell: str
    """As many lines as the Python script, each at the same place."""
    cells: tuple[tuple[int, int], ...] = ()
    """The first line of each code cell in the script, and the line after its last."""


def is_notebook(name: str) -> bool:
    """Whether a file is a notebook, by its name."""
    return name.lower().endswith(ENDING)


@cached(8)
def read_notebook(text: str, file: str) -> tuple[Notebook | None, tuple[Diagnostic, ...]]:
    """The scripts of a notebook, or the faults that make it unreadable."""
    written = _written(text)
    root, faults = parse(written.text, file, "json")
    if root is None or faults:
        return None, tuple(faults)
    lines = tuple(_lines(root, written))
    python = "\n".join(_python(lines))
    shell = "\n".join(_shell(lines))
    return Notebook(CellLines(file, lines=lines), python, shell, tuple(_cells(lines))), ()


def without_results(text: str) -> str:
    """A notebook's text with 0 for each result; lines keep their numbers."""
    return _written(text).text


def place_in(text: str, span: Span) -> tuple[int, int] | None:
    """The cell and the line in it at a place of a notebook's file, both from 1."""
    notebook, _ = read_notebook(text, span.file)
    lines = notebook.origin.lines if notebook is not None else ()
    place = span.line, span.column
    found = (each for each in lines if each.places[0] <= place <= each.places[-1])
    return next(((each.cell, each.number) for each in found), None)


# ── what somebody wrote, without results ─────────────────────────────────────────────────────────


class Written(Struct, frozen=True, dict=True):
    """A notebook's text with 0 for each result; lines keep their numbers."""

    text: str
    cuts: Mapping[int, Sequence[tuple[int, int]]]
    """By line: pairs of a column and the number of the file's characters that are removed before
    it."""

    @cached_property
    def lines(self) -> Sequence[str]:
        """The text's lines."""
        return lines_of(self.text)

    def left_out(self, line: int, column: int) -> int:
        """The number of characters of a line that are removed before a column."""
        cuts = self.cuts.get(line, ())
        at = bisect_right(cuts, column, key=itemgetter(0))
        return cuts[at - 1][1] if at else 0


def _written(text: str) -> Written:
    """The text without results, or unchanged if one cannot be parsed."""
    kept, begin, decoder = list[str](), 0, JSONDecoder()
    line, column, cuts = 1, 1, defaultdict[int, list[tuple[int, int]]](list)
    for found in _UNREAD.finditer(text):
        if found.start() < begin:
            continue
        try:
            _, end = decoder.raw_decode(text, found.end())
        except (ValueError, RecursionError):
            return Written(text, {})
        before = text[begin : found.end()]
        line, column = line + before.count("\n"), _column(before, column)
        result = text[found.end() : end]
        breaks = "\n" * result.count("\n")
        kept += [before, "0", breaks]
        line, column, begin = line + len(breaks), 1 if breaks else column + 1, end
        known = cuts[line][-1][1] if cuts[line] else 0
        cuts[line].append((column, known + _column(result, 0 if breaks else -1) - bool(breaks)))
    return Written("".join((*kept, text[begin:])), cuts)


def _column(text: str, column: int) -> int:
    """The column after a text that begins at a column."""
    _, broken, last = text.rpartition("\n")
    return len(last) + (1 if broken else column)


# ── cells ────────────────────────────────────────────────────────────────────────────────────────


def _lines(root: Node, written: Written) -> Iterator[Line]:
    cells = root.child("cells")
    for number, cell in enumerate(cells.items or () if cells is not None else (), 1):
        kind, source = cell.child("cell_type"), cell.child("source")
        if kind is None or kind.value != "code" or source is None:
            continue
        leaves = source.items if source.items is not None else (source,)
        yield from _of_cell(leaves, written, number)


def _of_cell(leaves: Sequence[Node], written: Written, cell: int) -> Iterator[Line]:
    """The lines in the texts of a cell, which are split over texts, or several in one.

    In the file a text of the cell has no line breaks: they are written as escapes.
    """
    text, places, number = "", list[tuple[int, int]](), 1
    for leaf in (each for each in leaves if isinstance(each.value, str)):
        line = leaf.span.line
        columns = _columns(written.lines[line - 1], leaf.span)
        left_out = written.left_out(line, leaf.span.column)
        for letter, column in zip(leaf.value, columns, strict=False):
            places.append((line, column + left_out))
            if letter != "\n":
                text += letter
                continue
            yield Line(text, tuple(places), cell, number)
            text, places, number = "", [], number + 1
    if text:
        line, column = places[-1]
        yield Line(text, (*places, (line, column + 1)), cell, number)


def _columns(line: str, span: Span) -> Iterator[int]:
    """The column of each character of a text in quotes; an escape is one character."""
    at = span.column
    while at < span.end_column - 2:
        escape = _ESCAPE.match(line, at)
        yield at + 1
        at = escape.end() if escape is not None else at + 1


def _cells(lines: Sequence[Line]) -> Iterator[tuple[int, int]]:
    starts = [at for at, each in enumerate(lines) if each.number == 1]
    yield from zip(starts, (*starts[1:], len(lines)), strict=False)


# ── which line is for whom ───────────────────────────────────────────────────────────────────────


def _magic(lines: Sequence[Line]) -> Iterator[str]:
    """The magic of each line's cell, or an empty text."""
    magic = ""
    for each in lines:
        if each.number == 1:
            found = _CELL.match(each.text)
            magic = found["magic"] if found is not None else ""
        yield magic


def _python(lines: Sequence[Line]) -> Iterator[str]:
    continued = False
    for each, magic in zip(lines, _magic(lines), strict=True):
        is_magic = continued or (_SHELL.match(each.text) or _MAGIC.match(each.text)) is not None
        given = _ASSIGNED.match(each.text)
        if continued or (magic and (each.number == 1 or magic not in _OF_PYTHON)):
            yield ""
        elif is_magic:
            yield _nothing(each.text)
        else:
            yield each.text if given is None else f"{given['names']} input()"
        continued = is_magic and each.text.endswith("\\")


def _nothing(text: str) -> str:
    """A line without effect at the same place, so that a block of only such lines is valid."""
    indent = text[: len(text) - len(text.lstrip())]
    return f"{indent}pass" if indent else ""


def _shell(lines: Sequence[Line]) -> Iterator[str]:
    continued = False
    for each, magic in zip(lines, _magic(lines), strict=True):
        found = _SHELL.match(each.text)
        if magic in _SHELLS:
            yield "" if each.number == 1 else each.text
        elif found is not None and not magic:
            yield " " * found.end() + each.text[found.end() :]
        else:
            yield each.text if continued and not magic else ""
        continued = (found is not None or continued) and each.text.endswith("\\")
