"""A key of a document that was read: its value, where it stands, and edits at that place."""

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Edit, Fix, Label
from tunec.compiler.frontend.nodes import Node, place, plain
from tunec.compiler.lints.edits import remove_key, rename_key, replace_value
from tunec.schemas.source import Span

if TYPE_CHECKING:
    from tunec.compiler.lints.document import Document


class Place(Struct, frozen=True):
    """A key with its value, as one document says it."""

    document: "Document"
    """The file that holds it."""
    path: str
    """The key's dotted path in that file, which for a view (DeepSpeed's keys in an accelerate
    file) differs from the path that it was asked by."""
    node: Node

    @property
    def value(self) -> Any:
        """The value as data."""
        return plain(self.node)

    @property
    def word(self) -> str | None:
        """The value where it is text; None where it is anything else."""
        value = self.value
        return value if isinstance(value, str) else None

    @property
    def span(self) -> Span:
        """Where the value stands, or its key where the value fills several lines."""
        return place(self.node)

    @property
    def key_span(self) -> Span:
        """Where the key stands; the value where there is no key (an item of a list)."""
        return self.node.key_span or self.node.span

    def label(self, text: str = "", *, primary: bool = True) -> Label:
        """A label at the value."""
        return Label(text, self.span, self.path, primary)

    def key_label(self, text: str = "", *, primary: bool = True) -> Label:
        """A label at the key."""
        return Label(text, self.key_span, self.path, primary)

    def replaced(self, value: Any) -> Edit:
        """The edit that writes another value here, in the words of the file's format."""
        return replace_value(self.document.source, self.node, value)

    def renamed(self, key: str) -> Edit:
        """The edit that gives the key another name; the value stays."""
        return rename_key(self.document.source, self.node, key)

    def removed(self) -> Edit:
        """The edit that takes the key and its value out, with its line or its comma."""
        return remove_key(self.document.source, self.node)


def meant(place: Place, name: str | None) -> tuple[str, Fix | None]:
    """The help and the fix for a key that nobody knows: the name that was meant, or no such key."""
    if name is None:
        return "remove it", None
    return f"did you mean `{name}`?", Fix((place.renamed(name),), "unsafe")


def also(place: Place | None, text: str = "") -> tuple[Label, ...]:
    """The label at another place of a finding, where there is one."""
    return () if place is None else (place.label(text, primary=False),)
