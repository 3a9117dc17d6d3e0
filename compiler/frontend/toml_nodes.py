"""toml_nodes: TOML text to nodes, with the values that Python's `tomllib` returns.

`tomllib` reads the text first, so that the text is known to be valid TOML 1.0; the walk only finds
the place of each key and value.
"""

import re
import tomllib
from typing import Any, Final

from msgspec import Struct, field

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend.document_faults import too_deep, too_many_values
from tunec.compiler.frontend.faults import error
from tunec.compiler.frontend.nodes import MAX_DEPTH, MAX_DIGITS, MAX_NODES, Node, is_too_large
from tunec.compiler.frontend.text import Origin, Places
from tunec.schemas.source import Span

_GAP: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BLANK: Final = re.compile(r"[ \t]*")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_STRINGS: Final = (
    re.compile(r'"""(?:\\[\s\S]|[^\\])*?"""(?!")'),
    re.compile(r"'''[\s\S]*?'''(?!')"),
    re.compile(r'"(?:\\.|[^"\\])*"'),
    re.compile(r"'[^']*'"),
)
"""Basic and literal strings, those of several lines first: TOML 1.0, String."""
_SCALAR: Final = re.compile(r"[^,\]}#\r\n]*[^,\]}#\r\n \t]")
_PLACE: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def parse_toml(text: str, origin: Origin) -> tuple[Node | None, tuple[Diagnostic, ...]]:
    """The tree of a document, or None with the fault that stops it; never raises.

    Dates and times stay as written.
    """
    places = Places(text, origin)
    try:
        tomllib.loads(text)
        return _Reader(text, places).document(), ()
    except tomllib.TOMLDecodeError as fault:
        return None, (_unreadable(str(fault), origin, text),)
    except (_TooDeep, RecursionError):
        return None, (too_deep(MAX_DEPTH, places.span(0, 0)),)
    except _TooMany:
        return None, (too_many_values(MAX_NODES, places.span(0, 0)),)
    except _Lost:
        return None, (error("E0104", "the TOML cannot be followed", places.span(0, 0)),)
    except ValueError:
        return None, (error("E0112", "a number has too many digits", places.span(0, 0)),)


class _TooDeep(Exception):
    """The document is nested too deep."""


class _TooMany(Exception):
    """The document holds too many values."""


class _Lost(Exception):
    """The walk found a text that `tomllib` should have refused."""


def _unreadable(message: str, origin: Origin, text: str) -> Diagnostic:
    found = _PLACE.search(message)
    said = message[: found.start()] if found else message
    if found is not None and found[1] is not None:
        line, column = int(found[1]) - 1, int(found[2]) - 1
    else:
        lines = text.splitlines() or [""]
        line, column = len(lines) - 1, len(lines[-1])
    span = origin.span((line, column), (line, column + 1))
    return error("E0104", f"the TOML cannot be read: {said[:1].lower()}{said[1:]}", span)


class _Table(Struct):
    """A table while it may still grow: `[a.b]` may follow `[a]`."""

    span: Span
    key_span: Span | None = None
    fields: "dict[str, _Table | _Tables | Node]" = field(default_factory=dict)

    def node(self) -> Node:
        fields = {
            key: each if isinstance(each, Node) else each.node()
            for key, each in self.fields.items()
        }
        return Node(self.span, key_span=self.key_span, fields=fields)


class _Tables(Struct):
    """An array of tables: each `[[a]]` adds one."""

    span: Span
    key_span: Span | None
    items: list[_Table] = field(default_factory=list)

    def node(self) -> Node:
        items = tuple(each.node() for each in self.items)
        return Node(self.span, key_span=self.key_span, items=items)


_Key = tuple[str, Span]


class _Reader(Struct):
    text: str
    places: Places
    at: int = 0
    values: int = 0
    depth: int = 0

    def document(self) -> Node:
        root = _Table(self.places.span(0, len(self.text)))
        table = root
        self._skip(_GAP)
        while self.at < len(self.text):
            if self.text[self.at] == "[":
                table = self._header(root)
            else:
                self._pair(table)
            self._skip(_GAP)
        return root.node()

    # ── tables ───────────────────────────────────────────────────────────────────────────────────

    def _header(self, root: _Table) -> _Table:
        start, width = self.at, 2 if self.text.startswith("[[", self.at) else 1
        self.at += width
        *parents, (name, span) = self._keys()
        self._skip(_BLANK)
        self.at += width
        whole = self.places.span(start, self.at)
        holder = self._descend(root, parents)
        if width == 1:
            return self._inner(holder, name, span, whole)
        array = holder.fields.setdefault(name, _Tables(whole, span))
        if not isinstance(array, _Tables):
            raise _Lost
        array.items.append(_Table(whole))
        return array.items[-1]

    def _inner(self, holder: _Table, name: str, span: Span, whole: Span) -> _Table:
        found = holder.fields.setdefault(name, _Table(whole, span))
        if isinstance(found, _Tables):
            return found.items[-1]
        if isinstance(found, Node):
            raise _Lost
        return found

    def _descend(self, table: _Table, keys: list[_Key]) -> _Table:
        if self.depth + len(keys) >= MAX_DEPTH:
            raise _TooDeep
        for name, span in keys:
            table = self._inner(table, name, span, span)
        return table

    def _pair(self, table: _Table) -> None:
        *parents, (name, span) = self._keys()
        self._skip(_BLANK)
        self.at += 1  # the sign of equality
        self._skip(_BLANK)
        found = self._value()
        self._descend(table, parents).fields[name] = Node(
            found.span, found.value, span, found.fields, found.items, found.written
        )

    def _keys(self) -> list[_Key]:
        found: list[_Key] = []
        while True:
            self._skip(_BLANK)
            start = self.at
            text = self._string() or self._match(_BARE)
            name = _evaluated(text) if text[0] in "\"'" else text
            found.append((name, self.places.span(start, self.at)))
            self._skip(_BLANK)
            if not self.text.startswith(".", self.at):
                return found
            self.at += 1

    # ── values ───────────────────────────────────────────────────────────────────────────────────

    def _value(self) -> Node:
        self.values += 1
        if self.values > MAX_NODES:
            raise _TooMany
        if self.depth >= MAX_DEPTH:
            raise _TooDeep
        start, first = self.at, self.text[self.at]
        if first == "[":
            return self._array()
        if first == "{":
            return self._inline()
        string = self._string()
        if string:
            return Node(self.places.span(start, self.at), _evaluated(string))
        written = self._match(_SCALAR)
        span = self.places.span(start, self.at)
        return Node(span, _evaluated(written), written=written)

    def _array(self) -> Node:
        start, items = self.at, []
        self._enter()
        while not self._closes("]"):
            items.append(self._value())
        return Node(self.places.span(start, self.at), items=tuple(items))

    def _inline(self) -> Node:
        start = self.at
        table = _Table(self.places.span(start, start))
        self._enter()
        while not self._closes("}"):
            self._pair(table)
        return Node(self.places.span(start, self.at), fields=table.node().fields)

    def _enter(self) -> None:
        self.at += 1
        self.depth += 1

    def _closes(self, bracket: str) -> bool:
        """Step over a comma or the closing bracket; return whether the collection ends."""
        self._skip(_GAP)
        if self.text[self.at] == ",":
            self.at += 1
            self._skip(_GAP)
        if self.text[self.at] != bracket:
            return False
        self.at += 1
        self.depth -= 1
        return True

    # ── tokens ───────────────────────────────────────────────────────────────────────────────────

    def _string(self) -> str:
        if self.text[self.at] not in "\"'":
            return ""
        found = next(filter(None, (each.match(self.text, self.at) for each in _STRINGS)))
        self.at = found.end()
        return found[0]

    def _match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        if found is None:
            raise _Lost
        self.at = found.end()
        return found[0]

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self.text, self.at)
        self.at = found.end() if found else self.at


def _evaluated(token: str) -> Any:
    """A leaf's value; dates and times stay as written, as plain data has none."""
    value = tomllib.loads(f"value = {token}")["value"]
    if isinstance(value, int) and is_too_large(value):
        raise ValueError(f"more than {MAX_DIGITS} digits")
    return value if isinstance(value, bool | int | float | str) else token
