"""compose: the files of a spec and the command line's overrides to one document.

Layers are laid over each other from the most basic file to the last `--set`; a later one wins,
mappings join, lists are replaced whole, and of fields that exclude each other the later choice
replaces the earlier. Then references are checked and resolved. Values and places are composed side
by side, so that a fault of any value points at the file and line where it was written.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend.faults import error
from tunec.compiler.frontend.files import Layers, Read
from tunec.compiler.frontend.interpolation import check
from tunec.compiler.frontend.layers import displaced, is_missing, merge, without, written_out
from tunec.compiler.frontend.nodes import Node, place, plain, walk
from tunec.compiler.frontend.parse import parse
from tunec.compiler.ir.slots import SLOTS
from tunec.schemas.frozen import replace
from tunec.schemas.source import COMMAND_LINE, LAID_OVER, Path, Span, dotted, line_starts

FREE_KEYS: Final = ("pin", "allow", "software")
"""Fields of the spec whose keys are names that may contain dots, such as `zero.stage`."""

_PART: Final = re.compile(r"(?P<key>[^.\[\]=\s]+)|\[(?P<index>\d{1,6})\]")


class Override(Struct, frozen=True):
    """A value that an argument sets at a path."""

    path: Path
    value: Node
    span: Span
    """The place of the path in the argument."""


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
    """`zero.stage` as one key, also in `zero.stage.reason`, which sets one part of a pin."""
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
    """The smallest document with only this override, to be merged over `tree`.

    A list is complete, with one item changed.
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


class Composition(Struct, frozen=True):
    """One document made of all layers."""

    tree: Node | None
    """The places of all values, with references unresolved. None: nothing could be read."""
    data: Any
    """The values, with references resolved."""
    faults: tuple[Diagnostic, ...]
    broken: frozenset[Path]
    """Leaves whose value is unknown, so that further faults of them are not reported."""
    read: Read


def compose(
    layers: Layers, overrides: Sequence[str] = (), laid_over: Sequence[str] = ()
) -> Composition:
    """Merge all layers and resolve their references.

    Overrides of a fleet file come before those of the command line.
    """
    faults = list(layers.faults)
    stack = _Stack.of(layers.nodes)
    if stack is None:
        return Composition(None, None, tuple(faults), frozenset(), layers.read)
    read = layers.read
    for file, arguments in ((LAID_OVER, laid_over), (COMMAND_LINE, overrides)):
        line = 1
        for argument in arguments:
            stack, found = stack.override(argument, line, file)
            faults += found
            line += len(line_starts(argument))
        read = _with_arguments(read, file, arguments)
    if stack.tree.fields is None:
        return Composition(stack.tree, stack.data, tuple(faults), frozenset(), read)
    return _resolved(stack, faults, read)


class _Stack(Struct, frozen=True):
    """The layers merged so far, as a tree with places and as values."""

    tree: Node
    data: Any

    @classmethod
    def of(cls, nodes: Sequence[Node]) -> "_Stack | None":
        """Merge documents; one that is no mapping replaces those before it."""
        if not nodes:
            return None
        stack = cls(nodes[0], plain(nodes[0]))
        for node in nodes[1:]:
            stack = stack.over(node)
        return stack

    def over(self, node: Node) -> "_Stack":
        """Merge one document over the others."""
        if node.fields is None or self.tree.fields is None:
            return _Stack(node, plain(node))
        tree = written_out(self.tree, node)
        for path in list(displaced(tree, node)):
            tree = without(tree, path)
        from tunec.compiler.frontend.omega import merge_values

        below = plain(tree) if tree is not self.tree else self.data
        touched = {key: below[key] for key in node.fields if key in below}
        return _Stack(merge(tree, node), {**below, **merge_values((touched, plain(node)))})

    def override(
        self, argument: str, line: int, file: str
    ) -> tuple["_Stack", tuple[Diagnostic, ...]]:
        """Merge one argument over the others."""
        read, faults = read_override(argument, line, file)
        if read is None:
            return self, faults
        layer, fault = overlay(self.tree, read)
        if layer is None:
            return self, (fault,) if fault else ()
        return self.over(replace(layer, span=self.tree.span)), ()


def _with_arguments(read: Read, file: str, arguments: Sequence[str]) -> Read:
    if not arguments:
        return read
    return replace(read, sources={**read.sources, file: "\n".join(arguments)})


def _resolved(stack: _Stack, faults: list[Diagnostic], read: Read) -> Composition:
    checked = check(stack.tree)
    missing = [(path, node) for path, node in walk(stack.tree) if is_missing(node)]
    faults += [*checked.faults, *(_not_given(path, node) for path, node in missing)]
    broken = checked.broken | {path for path, _ in missing}
    data = _without_values(stack.data, broken)
    if checked.used:
        data, more = _interpolated(data, stack.tree)
        faults += more
    return Composition(stack.tree, data, tuple(faults), broken, read)


def _interpolated(data: Any, tree: Node) -> tuple[Any, list[Diagnostic]]:
    from tunec.compiler.frontend.omega import resolve_values

    try:
        return resolve_values(data), []
    except ValueError as fault:
        return data, [error("E0209", f"a reference cannot be followed: {fault}", tree.span)]


def _without_values(data: Any, paths: frozenset[Path]) -> Any:
    """The values with None at some paths."""
    for path in paths:
        *parents, last = path
        node = data
        for part in parents:
            node = node[part]
        node[last] = None
    return data


def _not_given(path: Path, node: Node) -> Diagnostic:
    return error(
        "E0213",
        f"`{dotted(path)}` has no value yet",
        node.span,
        path=path,
        notes=("`???` marks a value that a spec which extends this one must give",),
        help=f"give it here, or with `--set {dotted(path)}=...`",
    )


def spans_of(tree: Node) -> Mapping[Path, Span]:
    """Where the value of each path was written, also in files that were extended."""
    return {path: place(node) for path, node in walk(tree)}
