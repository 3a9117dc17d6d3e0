"""Values in recipes that refer to other keys of their file, as OmegaConf resolves them."""

import re
from typing import Final

from tunec.compiler.frontend.nodes import Node
from tunec.schemas.frozen import replace

_NAMED: Final = re.compile(r"\$\{([\w.]+)\}")
_MARK: Final = "_component_:"


def interpolated(root: Node, text: str) -> Node:
    """A recipe's tree with each `${key}` replaced by its value.

    torchtune's recipes name components, and OmegaConf reads them: 2.3.0 grammar_visitor.py, a key
    by its dotted path from the top. A reference that leads nowhere stays as it is.
    """

    def resolved(node: Node) -> Node:
        if node.fields is not None:
            return replace(node, fields={key: resolved(each) for key, each in node.fields.items()})
        if node.items is not None:
            return replace(node, items=tuple(resolved(each) for each in node.items))
        if not isinstance(node.value, str):
            return node
        whole = _NAMED.fullmatch(node.value)
        if whole:
            return replace(node, value=_found(root, whole[1], node.value))
        return replace(node, value=_NAMED.sub(lambda hit: _text(root, hit), node.value))

    return resolved(root) if _MARK in text and "${" in text else root


def _text(root: Node, hit: re.Match[str]) -> str:
    return str(_found(root, hit[1], hit[0]))


def _found(root: Node, path: str, otherwise: str) -> object:
    node: Node | None = root
    for part in path.split("."):
        node = None if node is None else node.child(part)
    return otherwise if node is None or not node.is_leaf else node.value
