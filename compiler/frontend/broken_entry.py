"""Faults of a broken catalogue file, each with its place."""

from collections.abc import Mapping

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend.document import load_document
from tunec.compiler.frontend.faults import error
from tunec.schemas.entries import BrokenEntry
from tunec.schemas.shape import Shape
from tunec.schemas.source import dotted


def faults_of(broken: BrokenEntry) -> tuple[tuple[Diagnostic, ...], Mapping[str, str]]:
    """The faults of an entry's file, and its text by the file name that the places use."""
    read = load_document(broken.file, broken.shape or Shape)
    if read.diagnostics and (broken.shape is not None or not read.spans):
        return read.diagnostics, read.sources
    span = read.spans.get(dotted(broken.place))
    told = error("E0305", broken.reason, span, path=broken.place, help=broken.help)
    return (told,), read.sources
