"""Files as programs get them, from a plan or a directory, parsed to data with places."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.frontend.nodes import Node, plain
from tunec.compiler.frontend.parse import parse
from tunec.compiler.read import found_in, found_plain
from tunec.compiler.target import File, Found, Json
from tunec.compiler.verify.contract import Case, Delivered
from tunec.schemas.caches import cached

_TREES: Final = ("json", "yaml")


def document(file: File, delivered: Delivered) -> Json:
    """The data of a delivered text; an empty mapping if the text cannot be parsed."""
    if file.parse is not None:
        try:
            return file.parse(delivered.text)
        except (ValueError, TypeError, LookupError, AttributeError):
            return {}
    node = _tree(delivered.text, delivered.path, file.format)
    return {} if node is None else plain(node)


def values_of(case: Case, name: str) -> Any:
    """The data of a case's file, by its name in the target."""
    return document(case.file(name), case.delivered[name])


def places(file: File, delivered: Delivered) -> Mapping[str, Found]:
    """Every key of a delivered text by dotted path, with its place if the format has places."""
    if file.parse is None and file.format in _TREES:
        node = _tree(delivered.text, delivered.path, file.format)
        return {} if node is None else found_in(node)
    return found_plain(document(file, delivered))


@cached(64)
def _tree(text: str, path: str, format: str) -> Node | None:
    return parse(text, path, "json" if format == "json" else "yaml")[0]
