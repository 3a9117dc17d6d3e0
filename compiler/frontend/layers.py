"""Layers of a spec, merged in order: base files, the spec itself, the command line.

OmegaConf merges the values (`omega.py`). This module merges the trees that know where each value
was written, by the same rules, and finds what a layer replaces.
"""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.frontend.nodes import Node, descend
from tunec.schemas.frozen import replace
from tunec.schemas.source import Path
from tunec.schemas.spec import EXCLUSIVE, SHORTHANDS

MISSING: Final = "???"
"""OmegaConf's marker for a value that another layer must give."""


def is_missing(node: Node) -> bool:
    """Whether a leaf is the marker for a missing value."""
    return node.is_leaf and isinstance(node.value, str) and node.value == MISSING


def merge(base: Node, over: Node) -> Node:
    """Merge one tree over another, as `OmegaConf.merge` does: mappings join, other values replace.

    `???` marks a value that is still missing, so it replaces nothing.
    """
    if is_missing(over):
        return base
    if base.fields is None or over.fields is None:
        return over
    fields = dict(base.fields)
    for key, child in over.fields.items():
        fields[key] = merge(fields[key], child) if key in fields else child
    return replace(over, fields=fields)


def written_out(base: Node, over: Node) -> Node:
    """`base` with each shorthand expanded to a mapping, if `over` adds to that mapping.

    So `train.optimizer.weight_decay: 0.1` over `optimizer: lion` keeps Lion as the optimizer.
    """
    for path, field in SHORTHANDS.items():
        short, reached = descend(base, path)
        added, also = descend(over, path)
        is_text = short.is_leaf and isinstance(short.value, str) and not is_missing(short)
        if reached == also == path and is_text and added.fields is not None:
            whole = replace(short, value=None, fields={field: replace(short, key_span=None)})
            base = _with(base, path, whole)
    return base


def _with(tree: Node, path: Path, value: Node) -> Node:
    """The tree with another value at a path of existing keys."""
    if not path:
        return value
    head = str(path[0])
    fields = dict(tree.fields or {})
    fields[head] = _with(fields[head], path[1:], value)
    return replace(tree, fields=fields)


def displaced(base: Node, over: Node) -> Iterator[Path]:
    """Paths of `base` that a choice in `over` makes void.

    If fields exclude each other, those of the later layer replace the others: a spec with `qlora`
    over a base with `lora` means `qlora`.
    """
    for path, members in EXCLUSIVE.items():
        before, reached = descend(base, path)
        after, also = descend(over, path)
        if reached != path or also != path or before.fields is None or after.fields is None:
            continue
        chosen = {name for name in members if _gives(after, name)}
        if chosen:
            yield from ((*path, name) for name in members if name in before.fields.keys() - chosen)
    yield from _clashes(base, over)


def _clashes(base: Node, over: Node, path: Path = ()) -> Iterator[Path]:
    """Where a list and a mapping meet; OmegaConf refuses to merge them, the later one replaces."""
    for key, child in (over.fields or {}).items():
        below = base.child(key)
        if below is None or below.is_leaf or child.is_leaf:
            continue
        if (below.items is None) != (child.items is None):
            yield (*path, key)
        else:
            yield from _clashes(below, child, (*path, key))


def _gives(node: Node, name: str) -> bool:
    child = node.child(name)
    empty = child is None or (child.is_leaf and (child.value is None or is_missing(child)))
    return not empty or (child is not None and name in EXCLUSIVE[("method",)])


def without(tree: Node, path: Path) -> Node:
    """The tree without the field at a path."""
    head, *rest = path
    if tree.fields is None or head not in tree.fields:
        return tree
    fields = dict(tree.fields)
    child = fields.pop(str(head))
    if rest:
        fields[str(head)] = without(child, tuple(rest))
    return replace(tree, fields=fields)
