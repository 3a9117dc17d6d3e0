"""Files of ours that are no specs: text to a typed shape; and faults of broken catalogue files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Generic

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend.disk import Unreadable, near_files, read_bytes
from tunec.compiler.frontend.faults import error
from tunec.compiler.frontend.files import format_of
from tunec.compiler.frontend.nodes import Node, place, plain, walk
from tunec.compiler.frontend.parse import parse
from tunec.compiler.frontend.validation import ShapeT, typed
from tunec.schemas.entries import BrokenEntry, Completion
from tunec.schemas.shape import Shape
from tunec.schemas.source import Span, dotted, start_of


class Document(Struct, Generic[ShapeT], frozen=True):
    """The result of reading a file."""

    value: ShapeT | None
    """None if there is any fault."""
    spans: Mapping[str, Span]
    """The place of each value, by its dotted path."""
    diagnostics: tuple[Diagnostic, ...]
    sources: Mapping[str, str]
    """The text by the file name that spans use."""
    tree: Node | None = None
    """None if the file could not be parsed."""


def load_document(
    path: Path, shape: type[ShapeT], completed: Completion | None = None
) -> Document[ShapeT]:
    """Read a file as a shape; never raises, whatever the content."""
    try:
        content = read_bytes(path)
    except Unreadable as reason:
        message = f"cannot read `{path}`: {reason}"
        fault = error("E0201", message, start_of(str(path)), help=near_files(path))
        return Document(None, {}, (fault,), {})
    sources = {str(path): content.decode("utf-8", errors="replace")}
    tree, faults = parse(content, str(path), format_of(path))
    if tree is None:
        return Document(None, {}, faults, sources)
    spans = {dotted(at): place(node) for at, node in walk(tree)}
    data = plain(tree)
    found = typed(shape, completed(data, path) if completed else data, tree)
    every = (*faults, *found.faults)
    return Document(None if every else found.value, spans, every, sources, tree)


def faults_of(broken: BrokenEntry) -> tuple[tuple[Diagnostic, ...], Mapping[str, str]]:
    """The faults of an entry's file, and its text by the file name that the places use."""
    read = load_document(broken.file, broken.shape or Shape, broken.completed)
    if read.diagnostics and (broken.shape is not None or not read.spans):
        return read.diagnostics, read.sources
    span = read.spans.get(dotted(broken.place))
    told = error("E0305", broken.reason, span, path=broken.place, help=broken.help)
    return (told,), read.sources
