"""The structure of a file: its keys as symbols, and its foldable ranges."""

from collections.abc import Iterator

from lsprotocol.types import DocumentSymbol, FoldingRange, SymbolKind

from tunec.compiler.frontend.nodes import Node, walk
from tunec.compiler.lsp import dialect
from tunec.compiler.lsp.analysis import Analysis
from tunec.compiler.lsp.places import Text
from tunec.schemas.source import Span

_LONGEST = 60
"""The most characters of a value that an outline shows."""


def symbols(analysis: Analysis, text: Text) -> list[DocumentSymbol]:
    """The keys of a file, nested as they are in it."""
    found = (each for root in _roots(analysis) for each in _below(root, text))
    return list(found)


def folds(analysis: Analysis, text: Text) -> list[FoldingRange]:
    """Every mapping and list that spans several lines."""
    found: dict[int, int] = {}
    for root in _roots(analysis):
        for path, node in walk(root):
            start = (node.key_span or node.span).line
            end = _end(node.span, text)
            if path and end > start and not node.is_inline_json:
                found[start] = max(found.get(start, 0), end)
    return [FoldingRange(start - 1, end - 1) for start, end in sorted(found.items())]


def _roots(analysis: Analysis) -> Iterator[Node]:
    if analysis.tree is not None:
        yield analysis.tree
        return
    for _, document in dialect.documents(analysis):
        if document.text == analysis.text:
            yield document.root


def _below(node: Node, text: Text) -> Iterator[DocumentSymbol]:
    for part, child in node.children():
        key = child.key_span or child.span
        if child.is_inline_json or key.file != node.span.file:
            continue
        last = Span("", child.span.end_line, child.span.end_column, 0, 0)
        end = max((last.line, last.column), (key.end_line, key.end_column))
        whole = Span(key.file, key.line, key.column, *end)
        yield DocumentSymbol(
            _name(part, child) or "-",
            _kind(child),
            text.range(whole),
            text.range(key),
            detail=_detail(child),
            children=list(_below(child, text)) if not child.is_leaf else None,
        )


def _name(part: str | int, node: Node) -> str:
    named = node.child("name") if isinstance(part, int) else None
    return str(named.value) if named is not None and named.value else str(part)


def _kind(node: Node) -> SymbolKind:
    if node.fields is not None:
        return SymbolKind.Object
    if node.items is not None:
        return SymbolKind.Array
    return {bool: SymbolKind.Boolean, int: SymbolKind.Number, float: SymbolKind.Number}.get(
        type(node.value), SymbolKind.String
    )


def _detail(node: Node) -> str | None:
    return str(node.value)[:_LONGEST] if node.is_leaf and node.value is not None else None


def _end(span: Span, text: Text) -> int:
    """The last line of a span that is not blank; the end of a block is the start of the next."""
    end = span.end_line - 1 if span.end_column == 1 and span.end_line > span.line else span.end_line
    while end > span.line and end <= len(text.lines) and not text.lines[end - 1].strip():
        end -= 1
    return min(end, len(text.lines))
