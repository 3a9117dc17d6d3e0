"""The place of a cursor in a text that may be half written: under which key, and what is typed.

A marker is put at the cursor, open brackets are closed, and the text up to there is parsed. If that
is not a document either, only the lines above under which the cursor's line is indented are parsed,
so that errors further up do not matter.
"""

import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from tunec.compiler.frontend.nodes import Node, walk
from tunec.compiler.frontend.parse import parse
from tunec.compiler.lsp.places import holds
from tunec.schemas.source import Path

_MARK: Final = "tunec_cursor_here"
_WORD: Final = re.compile(r"""["']?[\w./@+*-]*$""")
_TABLE: Final = re.compile(r"""(?m)^[ \t]*\[([^\[\]\n]+)\][ \t]*(?:#.*)?$""")
_ASSIGNED: Final = re.compile(r"""^[ \t]*(?:([\w."'*/-]+)[ \t]*=[ \t]*)?[\[{]?["']?([^"'=]*)$""")
_CLOSES: Final = {"{": "}", "[": "]"}
_COMMENT: Final = re.compile(r"(?:^|\s)#")


class Cursor(Struct, frozen=True):
    """What is being written at a cursor."""

    path: Path
    """The path of the mapping to which a key is added, or of the value that is written."""
    is_key: bool
    word: str
    """The part of the key or value before the cursor, including quotes."""
    line: str
    """The part of the line before the cursor."""


def cursors(text: str, offset: int, format: str) -> tuple[Cursor, ...]:
    """What may be written at a cursor; several if both a key and a value are possible."""
    before = text[:offset]
    line = before.rpartition("\n")[2].rpartition("\r")[2]
    if format == "toml":
        return tuple(_in_toml(before, line))
    if _is_comment(line):
        return ()
    word = _WORD.search(line)
    written = word[0] if word else ""
    head = before[: len(before) - len(written)]
    found = (_found(head, each, written, line) for each in (True, False))
    return tuple(each for each in found if each is not None)


def _is_comment(line: str) -> bool:
    at = _COMMENT.search(line)
    return at is not None and line.count('"', 0, at.start()) % 2 == 0


def _found(head: str, is_key: bool, word: str, line: str) -> Cursor | None:
    for text in (head, "\n".join(_around(head))):
        path = _path(text, is_key=is_key)
        if path is not None:
            return Cursor(path[:-1] if is_key else path, is_key, word, line)
    return None


def _path(head: str, *, is_key: bool) -> Path | None:
    """The path of a marker after a text, as a key or as a value; None if it is neither."""
    text = f"{head}{_MARK}{': 0' if is_key else ''}{_closing(head)}".replace("\t", " ")
    tree, _ = parse(text, "", "spec")
    return next(_marked(tree, is_key=is_key), None) if tree is not None else None


def _marked(tree: Node, *, is_key: bool) -> Iterator[Path]:
    for path, node in walk(tree):
        if (is_key and path and path[-1] == _MARK) or (
            not is_key and node.is_leaf and node.value == _MARK
        ):
            yield path


def _closing(head: str) -> str:
    """The brackets that close those left open at the end of a text."""
    still: list[str] = []
    quote = ""
    for line in head.splitlines():
        quote = "" if not still else quote  # a quote of block style ends with its line, mostly
        for at, each in enumerate(line):
            if quote:
                quote = "" if each == quote else quote
            elif each in "\"'" and (at == 0 or not line[at - 1].isalnum()):
                quote = each
            elif each == "#" and (at == 0 or line[at - 1] == " "):
                break
            elif each in _CLOSES:
                still.append(_CLOSES[each])
            elif still and each == still[-1]:
                still.pop()
    return "".join(reversed(still))


def _around(head: str) -> list[str]:
    """The last line of a text, and the lines above under which it is indented."""
    *above, last = head.split("\n")
    kept, depth = [last], len(last) - len(last.lstrip(" "))
    is_item = last.lstrip().startswith("-")
    for line in reversed(above):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        indent = len(line) - len(line.lstrip(" "))
        opens = indent == depth and is_item and not line.lstrip().startswith("-")
        if indent < depth or opens:
            kept.append(line)
            depth, is_item = indent, line.lstrip().startswith("-")
    return kept[::-1]


def _in_toml(before: str, line: str) -> Iterator[Cursor]:
    """A key below the last table heading, or the value of one."""
    headings = list(_TABLE.finditer(before[: len(before) - len(line)]))
    table = _parts(headings[-1][1]) if headings else ()
    found = _ASSIGNED.match(line)
    if found is None or line.lstrip().startswith(("#", "[")):
        return
    key, word = found[1], found[2]
    yield Cursor((*table, *_parts(key or "")), key is None, word, line)


def _parts(dotted: str) -> Path:
    found = re.findall(r""""([^"]*)"|'([^']*)'|([\w-]+)""", dotted)
    return tuple(next(filter(None, each), "") for each in found)


def node_at(tree: Node, line: int, column: int) -> tuple[Path, Node] | None:
    """The deepest value whose key or text contains a place, with its path."""
    best: tuple[Path, Node] | None = None
    for path, node in walk(tree):
        spans = (node.key_span, node.span if node.is_leaf else None)
        if path and any(span is not None and holds(span, line, column) for span in spans):
            best = path, node
    return best
