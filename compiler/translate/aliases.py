"""Former names of keys, read as the current ones if a release knows both."""

from collections.abc import Mapping
from typing import Any

from tunec.compiler.consumers.moved_keys import MOVED, Moved
from tunec.compiler.frontend.nodes import Node, plain
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.compiler.translate.admission import PACKAGES, knows
from tunec.compiler.translate.statements import dialect_of
from tunec.schemas.frozen import replace


def with_newer_names(document: Document, run: LintContext) -> Document:
    """The document with keys under their current names, if its own reader accepts them.

    A key whose current name also occurs stays unchanged.
    """
    if document.target is None or document.file is None:
        return document
    dialect = dialect_of(run, document.target)
    root = document.root
    for package in PACKAGES.get(document.kind, ()):
        for moved in MOVED[package]:
            if moved.is_alias and knows(document.target, document.file, dialect, moved.new):
                root = _renamed(root, moved)
    return document if root is document.root else replace(document, root=root)


def _renamed(root: Node, moved: Moved) -> Node:
    old, new = moved.old.split("."), moved.new.split(".")
    node, is_taken = _at(root, old), _at(root, new) is not None
    if node is None or is_taken or not _has_room(root, new):
        return root
    value = plain(node)
    said = moved.words(value) if value is not None else None
    if said is None:  # a switch that is off says nothing of the other key
        return root
    return _with(_without(root, old), new, node if said == value else _holding(node, said))


def _at(root: Node, path: list[str]) -> Node | None:
    node: Node | None = root
    for part in path:
        node = (node.fields or {}).get(part) if node is not None else None
    return node


def _has_room(root: Node, path: list[str]) -> bool:
    """Whether the parent of a key is a mapping, or is absent."""
    around = (_at(root, path[:end]) for end in range(1, len(path)))
    return all(each is None or each.fields is not None for each in around)


def _without(node: Node, path: list[str]) -> Node:
    head, *rest = path
    fields: Mapping[str, Node] = node.fields or {}
    kept = {key: child for key, child in fields.items() if key != head}
    if rest and (inner := _without(fields[head], rest)).fields:
        kept = {key: inner if key == head else child for key, child in fields.items()}
    return replace(node, fields=kept)


def _with(node: Node, path: list[str], leaf: Node) -> Node:
    head, *rest = path
    fields = node.fields or {}
    inner = fields.get(head, Node(leaf.span, key_span=leaf.key_span, fields={}))
    return replace(node, fields={**fields, head: _with(inner, rest, leaf) if rest else leaf})


def _holding(node: Node, value: Any) -> Node:
    """A node at the same place with another value: a leaf, or a list of leaves."""
    if isinstance(value, list):
        items = tuple(replace(node, value=each, key_span=None) for each in value)
        return replace(node, value=None, items=items, written=None)
    return replace(node, value=value, items=None, written=None)
