"""JSON text to nodes: what Python's `json` module accepts, with a place for every key and value.

Trailing commas and comments are reported and skipped, so that the rest of the file is checked too;
any other syntax error ends the reading.
"""

import re
from collections.abc import Callable
from json import JSONDecodeError, decoder, loads
from typing import Any, Final

from msgspec import Struct, field

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend.document_faults import duplicate_key
from tunec.compiler.frontend.faults import error
from tunec.compiler.frontend.nodes import MAX_DEPTH, MAX_DIGITS, MAX_NODES, Node
from tunec.compiler.frontend.text import Origin, Places
from tunec.schemas.frozen import replace
from tunec.schemas.source import Span

_BLANK: Final = re.compile(r"[ \t\n\r]*")
_COMMENT: Final = re.compile(r"//[^\n]*|#[^\n]*|/\*.*?\*/", re.DOTALL)
_NUMBER: Final = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORD: Final = re.compile(r"[A-Za-z_$][\w.$-]*")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_scan_text: Final[Callable[[str, int, bool], tuple[str, int]]] = vars(decoder)["scanstring"]
"""`json`'s own function for reading a text; its type stubs leave it out."""
_LITERALS: Final[dict[str, Any]] = {
    "true": True,
    "false": False,
    "null": None,
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}
"""The last three are not in RFC 8259, but Python's `json` accepts them."""
COMMENT: Final = "JSON has no comments"
COMMA: Final = "there is a comma before the closing bracket"
"""The two faults after which reading continues, for readers that accept them."""
TRAILING: Final = "there is text after the end of the JSON document"
_PYTHON: Final = {"True": "true", "False": "false", "None": "null"}


def parse_json(text: str, origin: Origin) -> tuple[Node | None, tuple[Diagnostic, ...]]:
    """Read one JSON document.

    Never raises: the tree is None if the syntax is broken, and every fault is returned.
    """
    reader = _Reader(text, Places(text, origin))
    try:
        node = reader.document()
    except _Stop as stop:
        return None, (*reader.faults, stop.fault)
    return node, tuple(reader.faults)


def outline(text: str, origin: Origin) -> Node | None:
    """The document with nodes for its first level alone, each with plain data for its value.

    None for what is no list or mapping, and for what `parse_json` would report of it at the least.
    """
    try:
        data = loads(text)
    except (ValueError, RecursionError):
        return None
    span = origin.span((0, 0), (0, 0))
    if isinstance(data, dict):
        return Node(span, fields={key: Node(span, value=each) for key, each in data.items()})
    if isinstance(data, list):
        return Node(span, items=tuple(Node(span, value=each) for each in data))
    return None


class _Stop(Exception):
    """A fault after which the rest of the document is not read."""

    def __init__(self, fault: Diagnostic) -> None:
        super().__init__(fault.message)
        self.fault = fault


class _Reader(Struct):
    text: str
    places: Places
    at: int = 0
    nodes: int = 0
    faults: list[Diagnostic] = field(default_factory=list)
    path: list[str | int] = field(default_factory=list)

    def document(self) -> Node:
        node = self._value()
        self._skip()
        if self.at < len(self.text):
            raise self._stop(TRAILING)
        return node

    # ── values ───────────────────────────────────────────────────────────────────────────────────

    def _value(self) -> Node:
        self._skip()
        self._count()
        character = self._peek()
        if character == "{":
            return self._object()
        if character == "[":
            return self._array()
        if character == '"':
            start = self.at
            value = self._string()
            return Node(self._span(start), value)
        return self._number_or_word()

    def _object(self) -> Node:
        start = self._enter()
        fields: dict[str, Node] = {}
        keys: dict[str, Span] = {}
        while not self._closes("}", first=not keys):
            begin = self.at
            name = self._key()
            span = self._span(begin)
            self.path.append(name)
            if keys.setdefault(name, span) is not span:
                self.faults.append(duplicate_key(name, keys[name], span, tuple(self.path)))
            self._colon()
            fields[name] = replace(self._value(), key_span=span)
            self.path.pop()
        return Node(self._span(start), fields=fields)

    def _array(self) -> Node:
        start = self._enter()
        items: list[Node] = []
        while not self._closes("]", first=not items):
            self.path.append(len(items))
            items.append(self._value())
            self.path.pop()
        return Node(self._span(start), items=tuple(items))

    def _enter(self) -> int:
        if len(self.path) >= MAX_DEPTH:
            message = f"the document is nested more than {MAX_DEPTH} levels deep"
            raise self._stop(message, code="E0110")
        self.at += 1
        return self.at - 1

    def _closes(self, bracket: str, *, first: bool) -> bool:
        """Skip a comma or the closing bracket; return whether the collection ends."""
        self._skip()
        comma = self.at
        if not first and self._peek() == ",":
            self.at += 1
            self._skip()
            if self._peek() == bracket:
                self._trailing_comma(comma)
        elif not first and self._peek() != bracket:
            raise self._stop(
                f"a comma or `{bracket}` is missing",
                help=f"put a comma before it, or close with `{bracket}`",
            )
        if self._peek() != bracket:
            return False
        self.at += 1
        return True

    def _key(self) -> str:
        if self._peek() != '"':
            word = _WORD.match(self.text, self.at)
            shown = f'"{word[0]}"' if word else '"key"'
            raise self._stop(
                "keys in JSON are text in double quotes", help=f"write {shown}", word=True
            )
        return self._string()

    def _colon(self) -> None:
        self._skip()
        if self._peek() != ":":
            raise self._stop("a colon is missing after the key", help="write `:` after the key")
        self.at += 1

    # ── leaves ───────────────────────────────────────────────────────────────────────────────────

    def _string(self) -> str:
        start = self.at
        try:
            value, self.at = _scan_text(self.text, start + 1, True)
        except JSONDecodeError as problem:
            raise self._string_fault(problem, start) from None
        if _SURROGATE.search(value):
            message = "an escape in this text is a lone surrogate (half a character)"
            self.faults.append(error("E0112", message, self._span(start), path=tuple(self.path)))
            value = _SURROGATE.sub("\ufffd", value)
        return value

    def _string_fault(self, problem: JSONDecodeError, start: int) -> _Stop:
        at = problem.pos
        character = self.text[at : at + 1]
        if "Unterminated" in problem.msg or character in ("", "\n", "\r"):
            remedy = r'close it with `"`, and write line breaks as `\n`'
            return self._stop("a string is not closed on its line", remedy, at=start)
        if "control character" in problem.msg:
            return self._stop("a string contains an unescaped tab", r"write it as `\t`", at=at)
        return self._stop(
            "this backslash does not begin a JSON escape", r"write a backslash as `\\`", at=at
        )

    def _number_or_word(self) -> Node:
        start = self.at
        number = _NUMBER.match(self.text, start)
        if number is not None:
            self.at = number.end()
            return Node(self._span(start), self._number(number), written=number[0])
        word = re.compile(r"-?\w*").match(self.text, start)
        name = word[0] if word else ""
        if name not in _LITERALS:
            raise self._no_value(name)
        self.at = start + len(name)
        return Node(self._span(start), _LITERALS[name], written=name)

    def _number(self, number: re.Match[str]) -> int | float:
        whole, fraction, exponent = number.groups()
        if fraction or exponent:
            return float(number[0])
        if len(whole) > MAX_DIGITS:
            raise self._stop("the number has too many digits", code="E0112", at=number.start())
        return int(whole)

    def _no_value(self, name: str) -> _Stop:
        if name in _PYTHON:
            return self._stop(
                f"`{name}` is Python, not JSON", help=f"write `{_PYTHON[name]}`", word=True
            )
        if self._peek() == "'":
            return self._stop("text in JSON needs double quotes", help='write "..."')
        if self.at >= len(self.text):
            return self._stop("the file ends where a value is expected")
        return self._stop("no value can start here", help="put text in double quotes", word=True)

    # ── between values ───────────────────────────────────────────────────────────────────────────

    def _skip(self) -> None:
        while True:
            self._blank()
            comment = _COMMENT.match(self.text, self.at)
            if comment is None:
                return
            self.faults.append(
                error(
                    "E0105", COMMENT, self.places.span(*comment.span()), help="remove the comment"
                )
            )
            self.at = comment.end()

    def _blank(self) -> None:
        blank = _BLANK.match(self.text, self.at)
        if blank is not None:
            self.at = blank.end()

    def _trailing_comma(self, comma: int) -> None:
        span = self.places.span(comma, comma + 1)
        self.faults.append(error("E0105", COMMA, span, help="remove the comma"))

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _count(self) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            message = f"the document holds more than {MAX_NODES} values"
            raise self._stop(message, code="E0110", help="give a configuration file")

    def _span(self, start: int) -> Span:
        return self.places.span(start, self.at)

    def _stop(
        self,
        message: str,
        help: str | None = None,
        *,
        code: str = "E0105",
        at: int | None = None,
        word: bool = False,
    ) -> _Stop:
        end_of_text = len(self.text.rstrip())
        start = min(self.at if at is None else at, end_of_text)
        found = _WORD.match(self.text, start) if word else None
        end = found.end() if found else min(start + 1, end_of_text)
        span = self.places.span(start, end)
        return _Stop(error(code, message, span, path=tuple(self.path), help=help))
