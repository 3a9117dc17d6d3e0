"""Hostfiles of the deepspeed launcher as they were read."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place

LOCAL: Final = frozenset({"127.0.0.1", "localhost", "0.0.0.0", "::1"})  # noqa: S104  nothing is bound
"""Where a process that connects reaches its own host: 0.0.0.0 is for listening alone."""


class Entry(NamedTuple):
    """One line."""

    host: str
    slots: int | None
    """None where the launcher does not read the line."""
    place: Place
    """Of the number of slots, or of the line that is not read."""

    def label(self, text: str = "", *, primary: bool = True) -> Label:
        """A label there, under the name of the host."""
        return Label(text, self.place.span, self.host, primary)


def hostfiles(run: LintContext) -> Iterator[tuple[Document, tuple[Entry, ...]]]:
    """Each hostfile with its lines, in order."""
    for document in run.of("hostfile"):
        yield document, tuple(_entries(document))


def _entries(document: Document) -> Iterator[Entry]:
    for key, line in (document.root.fields or {}).items():
        host = document.value(f"{key}.host")
        at = document.get(f"{key}.slots") or document.get(f"{key}.refused")
        if isinstance(host, str) and at is not None and line.fields is not None:
            yield Entry(host, at.value if isinstance(at.value, int) else None, at)
