"""`--set path=value`: one argument to a place in the spec and the nodes of its value."""

import re
from typing import Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend.faults import error
from tunec.compiler.frontend.layers import merge
from tunec.compiler.frontend.nodes import Node
from tunec.compiler.frontend.parse import parse
from tunec.compiler.ir.slots import SLOTS
from tunec.schemas.frozen import replace
from tunec.schemas.source import COMMAND_LINE, Path, Span, dotted

FREE_KEYS: Final = ("pin", "allow", "software")
"""Fields of the spec whose keys are names that may hold dots, such as `zero.stage`."""

_PART: Final = re.compile(r"(?P<key>[^.\[\]=\s]+)|\[(?P<index>\d{1,6})\]")


class Override(Struct, frozen=True):
    """A value that an argument puts at a path."""

    path: Path
    value: Node
    span: Span
    """Where the path stands in the argument."""


def read_override(
    argument: str, line: int, file: str = COMMAND_LINE
) -> tuple[Override | None, tuple[Diagnostic, ...]]:
    """Read `path=value`, the value as YAML; `line` is the argument's line in the pseudo file."""
    target, equals, text = argument.partition("=")
    span = Span(file, line, 1, line, max(len(target), 1) + 1)
    path = _path(target.strip()) if equals else None
    if path is None:
        return None, (_malformed(argument, span),)
    node, faults = parse(text, file, "spec", line=line, column=len(target) + 2)
    if node is None or faults:
        return None, faults
    return Override(path, replace(node, key_span=span), span), ()


def _path(text: str) -> Path | None:
    head, _, rest = text.partition(".")
    if head in FREE_KEYS and rest:
        return (head, *_free(head, rest))
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        found = _PART.match(text, at)
        if found is None:
            return None
        parts.append(found["key"] or int(found["index"]))
        at = found.end()
        if text[at : at + 1] == "." and at + 1 < len(text):
            at += 1
        elif at < len(text) and text[at] != "[":
            return None
    return tuple(parts) if parts and isinstance(parts[0], str) else None


def _free(head: str, rest: str) -> tuple[str, ...]:
    """`zero.stage` is one key; so is it in `zero.stage.reason`, which says one part of a pin."""
    slot, _, part = rest.rpartition(".")
    if head == "pin" and part in ("value", "reason") and slot in SLOTS:
        return slot, part
    return (rest,)


def _malformed(argument: str, span: Span) -> Diagnostic:
    return error(
        "E0206",
        "an override must have the form path=value",
        replace(span, end_column=len(argument.partition("\n")[0]) + 1),
        notes=(
            "the path is the key's location in the spec: `train.learning_rate`, `pin.zero.stage`",
        ),
        help="write it as `--set train.learning_rate=1e-4`",
    )


def overlay(tree: Node, override: Override) -> tuple[Node | None, Diagnostic | None]:
    """The smallest document that says only this override, to be merged over `tree`.

    A list is given whole, with one item changed.
    """
    return _overlay(tree, override, 0)


def _overlay(
    tree: Node | None, override: Override, depth: int
) -> tuple[Node | None, Diagnostic | None]:
    if depth == len(override.path):
        return override.value, None
    part = override.path[depth]
    if isinstance(part, int):
        return _in_list(tree, override, depth, part)
    child = tree.child(part) if tree else None
    inner, fault = _overlay(child, override, depth + 1)
    if inner is None:
        return None, fault
    if tree is None or tree.fields is None:
        fields = {**_bare_pin(tree, override, depth), part: inner}
        return Node(override.span, key_span=override.span, fields=fields), None
    return replace(tree, fields={part: inner}), None


def _bare_pin(tree: Node | None, override: Override, depth: int) -> dict[str, Node]:
    """The value of a pin that an override adds a reason to: `zero.stage: 2` keeps its 2."""
    is_pin = depth == 2 and override.path[0] == "pin"
    if tree is None or not is_pin or not tree.is_leaf or tree.value is None:
        return {}
    return {"value": replace(tree, key_span=None)}


def _in_list(
    tree: Node | None, override: Override, depth: int, index: int
) -> tuple[Node | None, Diagnostic | None]:
    items = tree.items if tree else None
    if tree is None or items is None or index >= len(items):
        return None, _no_such_item(override, depth, items)
    inner, fault = _overlay(items[index], override, depth + 1)
    if inner is None:
        return None, fault
    changed = merge(items[index], inner)
    return replace(tree, items=(*items[:index], changed, *items[index + 1 :])), None


def _no_such_item(override: Override, depth: int, items: tuple[Node, ...] | None) -> Diagnostic:
    place = dotted(override.path[:depth])
    if items is None:
        message = f"`{place}` is not a list, so it has no item {override.path[depth]}"
    else:
        message = f"`{place}` has {len(items)} items, so there is no item {override.path[depth]}"
    return error(
        "E0207",
        message,
        override.span,
        path=override.path,
        notes=("items are counted from 0",),
        help=f"set the whole list: `--set '{place}=[...]'`",
    )
