"""The errors of PyYAML and libyaml, in tunec's words."""

from typing import Final

from yaml import YAMLError
from yaml.error import Mark, MarkedYAMLError

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.frontend.document_faults import too_deep
from tunec.compiler.frontend.faults import beside, error
from tunec.compiler.frontend.nodes import MAX_DEPTH
from tunec.compiler.frontend.text import Origin, YamlLines, yaml_lines
from tunec.schemas.frozen import replace
from tunec.schemas.source import Span, text_of

_WORDS: Final = (
    (
        "mapping values are not allowed",
        "a `:` starts a mapping where none is allowed",
        "if the text holds a colon and a space, put it in quotes; otherwise fix the indentation",
    ),
    (
        "could not find expected ':'",
        "a line that should be `key: value` has no `:`",
        "write a colon and a space after the key",
    ),
    (
        "while scanning an alias",
        "a `*` that names no alias",
        "put text that begins with `*` in quotes",
    ),
    (
        "while scanning an anchor",
        "a `&` that names no anchor",
        "put text that begins with `&` in quotes",
    ),
    (
        "found undefined tag handle",
        "a `!` makes a tag that is not defined",
        "put text that begins with `!` in quotes",
    ),
    (
        "found unknown escape character",
        "an unknown escape in double quotes",
        "use single quotes for text with backslashes",
    ),
    ("found unexpected end of stream", "a quoted string is not closed", "close the quotes"),
    (
        "',' or ']'",
        "a list in brackets is not closed, or a comma is missing",
        "close it with `]`, or put a comma between its items",
    ),
    (
        "',' or '}'",
        "a mapping in braces is not closed, or a comma is missing",
        "close it with `}`, or put a comma between its entries",
    ),
    (
        "expected <block end>",
        "the indentation matches nothing around it",
        "give all keys of a mapping the same indentation",
    ),
    (
        "<document start>",
        "the indentation matches nothing around it",
        "give all keys of a mapping the same indentation",
    ),
    (
        "did not find expected key",
        "the indentation matches nothing around it",
        "give all keys of a mapping the same indentation",
    ),
    (
        "did not find expected '-' indicator",
        "the indentation matches nothing around it",
        "begin each item of the list with `- ` in one column",
    ),
    (
        "block sequence entries are not allowed",
        "a list item stands where none is allowed",
        "begin the list on a line of its own, below its key",
    ),
    ("cannot start any token", "a character that cannot begin a value", "put the text in quotes"),
    (
        "node content",
        "a value is expected here",
        "write a value, or put text that begins with a sign in quotes",
    ),
    (
        "incompatible YAML document",
        "the `%YAML` line names a version that is not 1.x",
        "remove the line",
    ),
)
"""A part of the reader's message, the error, and the fix; the first match counts."""


_TOO_DEEP: Final = "exceeded maximum nesting depth"
"""libyaml 0.2.6 src/scanner.c reads ahead 1,000 levels, and 0.2.5 any number."""
_BROKEN: Final = "U+0085, U+2028 and U+2029, which editors do not show, end a line in YAML 1.1"


def explain(problem: YAMLError, text: str, origin: Origin) -> Diagnostic:
    """The diagnostic of a syntax error that stopped the reader."""
    found = _explain(problem, text, origin)
    is_broken = isinstance(origin, YamlLines)
    return replace(found, notes=(*found.notes, _BROKEN)) if is_broken else found


def _explain(problem: YAMLError, text: str, origin: Origin) -> Diagnostic:
    if not isinstance(problem, MarkedYAMLError) or problem.problem_mark is None:
        return error("E0104", "the YAML cannot be read", origin.span((0, 0), (0, 0)))
    span = _span(problem.problem_mark, text, origin)
    if _indented_by_tab(problem.problem_mark, text):
        return _tab(problem.problem_mark, text, origin)
    complaint = f"{problem.context or ''} {problem.problem or ''}"
    if _TOO_DEEP in complaint:
        return too_deep(MAX_DEPTH, span)
    message, remedy = _words(complaint, problem.problem or "", text_of(span, text))
    if _is_reference(problem.problem_mark, text):
        message, remedy = _REFERENCE
    begun = problem.context_mark
    if begun is not None and "end of stream" in complaint:
        return error("E0104", message, _span(begun, text, origin), help=remedy)
    if begun is not None and "simple key" in complaint:
        return error("E0104", message, _rest_of_line(begun, text, origin), help=remedy)
    others: tuple[Label, ...] = ()
    if begun is not None and begun.line != problem.problem_mark.line:
        others = (beside("the part being read begins here", _span(begun, text, origin)),)
    return error("E0104", message, span, others=others, help=remedy)


def _words(complaint: str, problem: str, character: str) -> tuple[str, str | None]:
    if character and character in "]},":
        return f"a `{character}` closes nothing", f"remove the `{character}`"
    for piece, message, remedy in _WORDS:
        if piece in complaint:
            return message, remedy
    return f"the YAML cannot be read: {problem}", None


def _span(mark: Mark, text: str, origin: Origin) -> Span:
    """The character at a mark; the last of the text if the mark is behind it."""
    lines = yaml_lines(text)
    line = min(mark.line, len(lines) - 1)
    column = min(mark.column, len(lines[line])) if line == mark.line else len(lines[line])
    return origin.span((line, column), (line, min(column + 1, len(lines[line]))))


_REFERENCE: Final = (
    "a reference without quotes stands inside braces or brackets, which end it",
    'put it in quotes: `"${...}"`',
)


def _is_reference(mark: Mark, text: str) -> bool:
    """Whether a reader failed at the brace of `${...}` in a mapping or list on one line."""
    lines = yaml_lines(text)
    line = lines[mark.line] if mark.line < len(lines) else ""
    return mark.column > 0 and line[mark.column - 1 : mark.column + 1] == "${"


def _rest_of_line(mark: Mark, text: str, origin: Origin) -> Span:
    line = yaml_lines(text)[mark.line]
    return origin.span((mark.line, mark.column), (mark.line, len(line.rstrip())))


def _margin(mark: Mark, text: str) -> str:
    lines = yaml_lines(text)
    line = lines[mark.line] if mark.line < len(lines) else ""
    return line[: len(line) - len(line.lstrip(" \t"))]


def _indented_by_tab(mark: Mark, text: str) -> bool:
    return "\t" in _margin(mark, text)


def _tab(mark: Mark, text: str, origin: Origin) -> Diagnostic:
    margin = _margin(mark, text)
    column = margin.index("\t")
    return error(
        "E0106",
        "this line is indented with a tab",
        origin.span((mark.line, column), (mark.line, len(margin))),
        notes=("YAML allows only spaces in the indentation",),
        help="indent with spaces",
    )
