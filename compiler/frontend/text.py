"""Bytes to text: encoding, size and forbidden characters."""

import re
from bisect import bisect_right
from functools import cached_property
from typing import Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend.faults import error
from tunec.schemas.source import Span, line_starts

MAX_BYTES: Final = 1 << 20
ENDING: Final = ".ipynb"
"""The suffix of notebooks."""

_BOM: Final = "\ufeff"
_WIDE_BOMS: Final = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
_NOT_IN_YAML: Final = (
    "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
"""YAML 1.1, 5.1 (c-printable), which PyYAML's reader checks; and byte order marks, which occur
inside a file only by accident."""
_NOT_IN_YAML_OF_ASCII: Final = "[^\t\n\r\x20-\x7e]"
"""ASCII characters that YAML forbids; separate, since the whole set takes milliseconds to
compile."""
_NOT_IN_JSON: Final = "[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]"
"""RFC 8259, 7: control characters must be escaped; surrogates are not characters."""

_ONLY_YAML: Final = re.compile("[\x85\u2028\u2029]")
_YAML_BREAK: Final = re.compile("\r\n|[\r\n\x85\u2028\u2029]")


class Origin(Struct, frozen=True):
    """The file of a text, and the place in it where the text begins."""

    file: str
    line: int = 1
    column: int = 1

    def span(self, start: tuple[int, int], end: tuple[int, int]) -> Span:
        """The span between two places of the text, given as line and column from 0."""
        return Span(self.file, *self._moved(start), *self._moved(end))

    def _moved(self, place: tuple[int, int]) -> tuple[int, int]:
        line, column = place
        return line + self.line, column + (self.column if line == 0 else 1)


class Places(Struct, frozen=True, dict=True):
    """Lines and columns of a text's characters, by their index."""

    text: str
    origin: Origin

    @cached_property
    def _starts(self) -> list[int]:
        return line_starts(self.text)

    def span(self, start: int, end: int) -> Span:
        """The span of a slice of the text."""
        return self.origin.span(self._place(start), self._place(end))

    def _place(self, index: int) -> tuple[int, int]:
        line = bisect_right(self._starts, index) - 1
        return line, index - self._starts[line]


class YamlLines(Origin, frozen=True):
    """The origin of a text with places by YAML's lines, which it converts to an editor's.

    YAML 1.1 (5.4), and PyYAML with it, also ends a line at U+0085, U+2028 and U+2029.
    """

    starts: tuple[int, ...] = ()
    """The index of the first character of each of YAML's lines."""
    lines: tuple[int, ...] = ()
    """The index of the first character of each of an editor's lines."""

    def span(self, start: tuple[int, int], end: tuple[int, int]) -> Span:
        """The span between two places, given as YAML's line and column from 0."""
        return Origin.span(self, self._shown(start), self._shown(end))

    def _shown(self, place: tuple[int, int]) -> tuple[int, int]:
        line, column = place
        index = self.starts[min(line, len(self.starts) - 1)] + column
        at = bisect_right(self.lines, index) - 1
        return at, index - self.lines[at]


def yaml_origin(text: str, origin: Origin) -> Origin:
    """The converter of a YAML reader's places to spans: `origin` itself for almost any text."""
    if text.isascii() or not _ONLY_YAML.search(text):
        return origin
    starts = (0, *(found.end() for found in _YAML_BREAK.finditer(text)))
    return YamlLines(origin.file, origin.line, origin.column, starts, tuple(line_starts(text)))


def yaml_lines(text: str) -> list[str]:
    """Split a text into lines without their ends, by the line breaks of YAML 1.1 (5.4)."""
    return _YAML_BREAK.split(text)


def decode(
    source: str | bytes, origin: Origin, *, bom_allowed: bool
) -> tuple[str, Diagnostic | None]:
    """The text without a byte order mark, and the fault that makes it unreadable."""
    size = len(source)
    if size > MAX_BYTES:
        return "", _too_large(size, origin)
    if isinstance(source, bytes):
        text, fault = _decode_bytes(source, origin)
        if fault is not None:
            return "", fault
    else:
        text = source
    if not text.startswith(_BOM):
        return text, None
    return text[1:], None if bom_allowed else _bom(origin)


def _decode_bytes(source: bytes, origin: Origin) -> tuple[str, Diagnostic | None]:
    for mark, name in _WIDE_BOMS.items():
        if source.startswith(mark):
            return "", _not_utf8(origin, (0, 0), f"the file is encoded in {name}")
    try:
        return source.decode("utf-8"), None
    except UnicodeDecodeError as fault:
        before = source[: fault.start].decode("utf-8")
        starts = line_starts(before)
        place = (len(starts) - 1, len(before) - starts[-1])
        return "", _not_utf8(origin, place, f"byte 0x{source[fault.start]:02x} is not valid UTF-8")


def _too_large(size: int, origin: Origin) -> Diagnostic:
    return error(
        "E0101",
        f"the file is too large: {size} bytes, at most {MAX_BYTES} are read",
        origin.span((0, 0), (0, 0)),
        help="give a configuration file, not data or weights",
    )


def _not_utf8(origin: Origin, place: tuple[int, int], message: str) -> Diagnostic:
    line, column = place
    span = origin.span(place, (line, column + 1))
    return error("E0102", message, span, help="save the file as UTF-8")


def _bom(origin: Origin) -> Diagnostic:
    return error(
        "E0105",
        "the JSON begins with a byte order mark",
        origin.span((0, 0), (0, 0)),
        notes=("the consumers read it with `json.load`, which refuses it",),
        help="save the file as UTF-8 without a byte order mark",
    )


def forbidden_character(text: str, origin: Origin, *, json: bool) -> Diagnostic | None:
    """The fault of the first character that a document must not contain, if there is one."""
    in_yaml = _NOT_IN_YAML_OF_ASCII if text.isascii() else _NOT_IN_YAML
    found = re.search(_NOT_IN_JSON if json else in_yaml, text)
    if found is None:
        return None
    code = ord(found[0])
    what = "a NUL character" if code == 0 else f"the character U+{code:04X}"
    return error(
        "E0103",
        f"{what} may not occur in a configuration file",
        Places(text, origin).span(found.start(), found.end()),
        help="remove it, or write it as an escape in double quotes",
    )
