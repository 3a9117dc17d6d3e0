"""Documents as trees in which every key and value knows its place.

The same nodes represent specs and the configs of other programs. A document is untrusted: its size,
depth and number of values are limited, and every fault is a diagnostic.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from tunec.schemas.source import Path, Span

MAX_DEPTH: Final = 64
MAX_NODES: Final = 100_000
"""The most values in one document; each alias counts as all values that it refers to."""
MAX_DIGITS: Final = 40
"""Most digits of a whole number: products of several are still floats, and no program counts beyond
64 bits."""
_TOO_LARGE: Final = int("1" + "0" * MAX_DIGITS)


def is_too_large(number: int) -> bool:
    """Whether a whole number has too many digits."""
    return abs(number) >= _TOO_LARGE


class Node(Struct, frozen=True):
    """One value of a document: a leaf, a mapping (`fields`) or a sequence (`items`)."""

    span: Span
    value: Any = None
    """A leaf's data; None for mappings and sequences."""
    key_span: Span | None = None
    """The place of its key, in a mapping."""
    fields: "Mapping[str, Node] | None" = None
    items: "tuple[Node, ...] | None" = None
    written: str | None = None
    """The text of an unquoted leaf as in the file."""
    is_inline_json: bool = False
    """Whether it is part of a JSON text in the file, whose span it has: it cannot be edited."""

    @property
    def is_leaf(self) -> bool:
        """Whether this is neither a mapping nor a sequence."""
        return self.fields is None and self.items is None

    def child(self, part: str | int) -> "Node | None":
        """The value under a key or an index, if there is one."""
        if self.fields is not None and isinstance(part, str):
            return self.fields.get(part)
        if self.items is not None and isinstance(part, int) and 0 <= part < len(self.items):
            return self.items[part]
        return None

    def children(self) -> "Iterator[tuple[str | int, Node]]":
        """Keys or indices with their values, in the order of the document."""
        if self.fields is not None:
            yield from self.fields.items()
        elif self.items is not None:
            yield from enumerate(self.items)


def plain(node: Node) -> Any:
    """The document as plain data: dict, list and leaves."""
    if node.fields is not None:
        return {key: plain(child) for key, child in node.fields.items()}
    if node.items is not None:
        return [plain(child) for child in node.items]
    return node.value


def walk(node: Node, path: Path = ()) -> Iterator[tuple[Path, Node]]:
    """Every node with its path, parents first."""
    yield path, node
    for part, child in node.children():
        yield from walk(child, (*path, part))


def place(node: Node) -> Span:
    """The place of a value; that of its key if the value is empty or spans several lines."""
    span = node.span
    empty = (span.line, span.column) == (span.end_line, span.end_column)
    if node.key_span is not None and (empty or (not node.is_leaf and span.line != span.end_line)):
        return node.key_span
    return span


def descend(node: Node, path: Path) -> tuple[Node, Path]:
    """The deepest node on a path, and the part of the path that leads to it."""
    for depth, part in enumerate(path):
        child = node.child(part)
        if child is None:
            return node, path[:depth]
        node = child
    return node, path
