"""`${path.to.key}` in a spec: what it names, before anything follows it.

A reference names one key, letter by letter. Resolvers (`${oc.env:HOME}`) would read the world
outside the spec, and computed references could not be checked: both are refused. So every
reference, every circle and the size of what they expand to are known before OmegaConf runs.
"""

import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct, field

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.diagnostics.wording import did_you_mean, nearest, quoted, shortened
from tunec.compiler.frontend.faults import beside, error
from tunec.compiler.frontend.layers import is_missing
from tunec.compiler.frontend.nodes import Node, descend, walk
from tunec.schemas.source import Path, dotted

MAX_EXPANDED: Final = 100_000
"""The most characters and values to which all references of a spec may expand."""
MAX_CHAIN: Final = 32

_OPEN: Final = re.compile(r"(?P<slashes>\\*)\$\{")
_REFERENCE: Final = re.compile(
    r"\$\{\s*(?P<dots>\.*)(?P<key>[A-Za-z_][\w-]*(?:\.[\w-]+|\[[\w-]+\])*)\s*\}", re.ASCII
)


class Reference(Struct, frozen=True):
    """One `${...}` in a text."""

    text: str
    up: int
    """Leading dots: 1 is the mapping that contains the text; 0: from the root."""
    keys: tuple[str, ...]

    def target(self, at: Path) -> Path | None:
        """The path that it names, for a text at a path; None above the root."""
        if self.up > len(at):
            return None
        base = at[: len(at) - self.up] if self.up else ()
        return (*base, *self.keys)


class ReferenceCheck(Struct, frozen=True):
    """The result of checking all references."""

    faults: tuple[Diagnostic, ...]
    broken: frozenset[Path]
    """Leaves whose value is unknown."""
    used: bool
    """Whether there is any reference or escape to resolve."""


class _Broken(Exception):
    """A reference leads nowhere; `fault` is None if another leaf is the cause."""

    def __init__(self, fault: Diagnostic | None) -> None:
        super().__init__()
        self.fault = fault


def check(tree: Node) -> ReferenceCheck:
    """Follow every reference of a tree; report each refused or dangling one, once."""
    following = _Following(tree)
    faults: list[Diagnostic] = []
    broken: set[Path] = set()
    for path, node in walk(tree):
        if not node.is_leaf or not has_reference(node.value):
            continue
        try:
            following.weigh(path, node, ())
        except _Broken as stop:
            broken.add(path)
            faults += [stop.fault] if stop.fault else []
    return ReferenceCheck(tuple(faults), frozenset(broken | following.circular), following.used)


def has_reference(value: object) -> bool:
    """Whether a value is a text that OmegaConf would interpolate or unescape."""
    return isinstance(value, str) and "${" in value


class _Following(Struct):
    """Computes the expanded size of leaves, and so finds circles and dangling references."""

    tree: Node
    weights: dict[Path, int] = field(default_factory=dict)
    reported: set[Path] = field(default_factory=set)
    circular: set[Path] = field(default_factory=set)
    used: bool = False

    def weigh(self, path: Path, node: Node, chain: tuple[Path, ...]) -> int:
        """Characters and values to which a node expands; raises _Broken."""
        if path in self.weights:
            return self.weights[path]
        if path in self.reported:
            raise _Broken(None)
        try:
            weight = self._weigh(path, node, chain)
        except _Broken:
            self.reported.add(path)
            raise
        self.weights[path] = weight
        return weight

    def _weigh(self, path: Path, node: Node, chain: tuple[Path, ...]) -> int:
        if not node.is_leaf:
            every = [(at, each) for at, each in walk(node, path) if each.is_leaf]
            return 1 + sum(self.weigh(at, each, chain) for at, each in every)
        if not has_reference(node.value):
            return max(1, len(str(node.value)))
        self.used = True
        if path in chain:
            raise _Broken(self._circle((*chain[chain.index(path) :], path)))
        if len(chain) >= MAX_CHAIN:
            raise _Broken(_too_long(path, node))
        return self._follow_all(path, node, (*chain, path))

    def _follow_all(self, path: Path, node: Node, chain: tuple[Path, ...]) -> int:
        weight = len(node.value)
        for found in references(node.value):
            if isinstance(found, str):
                raise _Broken(_refused(found, path, node))
            target, child = self._look_up(found, path, node)
            if target == path[: len(target)]:
                raise _Broken(self._circle((path, target)))
            weight += self.weigh(target, child, chain)
        if weight > MAX_EXPANDED:
            raise _Broken(_too_large(path, node))
        return weight

    def _look_up(self, found: Reference, at: Path, node: Node) -> tuple[Path, Node]:
        target = found.target(at)
        if target is None:
            raise _Broken(_nothing_there(found, at, node, self.tree, ()))
        target, child, reached = self._walk_to(target)
        if reached != target:
            raise _Broken(_nothing_there(found, at, node, child, reached))
        if is_missing(child):
            raise _Broken(None)
        return target, child

    def _walk_to(self, target: Path) -> tuple[Path, Node, Path]:
        """Follow a path, even if a mapping on the way is itself a reference."""
        for _ in range(MAX_CHAIN):
            target = _with_indices(self.tree, target)
            child, reached = descend(self.tree, target)
            onward = _whole_reference(child)
            base = onward.target(reached) if onward and reached != target else None
            if base is None:
                break
            target = (*base, *target[len(reached) :])
        return target, child, reached

    def _circle(self, paths: tuple[Path, ...]) -> Diagnostic | None:
        fresh = not self.circular & set(paths)
        self.circular |= {path for path in paths if descend(self.tree, path)[0].is_leaf}
        return _circle(self.tree, paths) if fresh else None


def references(text: str) -> Iterator[Reference | str]:
    """Each reference of a text; for a malformed `${...}`, its raw text."""
    for found in _OPEN.finditer(text):
        if len(found["slashes"]) % 2 == 0:
            start = found.start() + len(found["slashes"])
            plain = _REFERENCE.match(text, start)
            yield _reference(plain) if plain else text[start : _end(text, start)]


def _reference(found: re.Match[str]) -> Reference:
    keys = tuple(part for part in re.split(r"[.\[\]]+", found["key"]) if part)
    return Reference(found[0], len(found["dots"]), keys)


def _whole_reference(node: Node) -> Reference | None:
    """The reference that a leaf consists of, if it is nothing else."""
    found = _REFERENCE.fullmatch(node.value) if has_reference(node.value) else None
    return _reference(found) if found else None


def _end(text: str, start: int) -> int:
    depth = 0
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0 and text[at] == "}":
            return at + 1
    return len(text)


def _with_indices(tree: Node, path: Path) -> Path:
    """The path with keys that lead into lists as numbers."""
    taken: list[str | int] = []
    node: Node | None = tree
    for part in path:
        index = node is not None and node.items is not None and str(part).isdecimal()
        taken.append(int(part) if index else part)
        node = node.child(taken[-1]) if node else None
    return tuple(taken)


# ── messages ─────────────────────────────────────────────────────────────────────────────────────


def _refused(text: str, path: Path, node: Node) -> Diagnostic:
    if ":" in text:
        return error(
            "E0208",
            f"`{shortened(text)}` calls an OmegaConf resolver",
            node.span,
            path=path,
            notes=(
                "a spec means the same everywhere: nothing in it reads the environment or runs",
            ),
            help=r"write the value itself, or `\${...}` for the characters",
        )
    return error(
        "E0209",
        f"`{shortened(text)}` is not a reference to a key",
        node.span,
        path=path,
        notes=("a reference is `${path.to.key}`, each key written out",),
        help=r"name one key, or write `\${...}` for the characters",
    )


def _nothing_there(
    found: Reference, at: Path, node: Node, around: Node, reached: Path
) -> Diagnostic:
    name = f"{'.' * found.up}{'.'.join(found.keys)}"
    target = found.target(at) or ()
    wanted = str(target[len(reached)]) if len(target) > len(reached) else name
    known = list(around.fields or {})
    near = did_you_mean([dotted((*reached, each)) for each in nearest(wanted, known)])
    where = f"`{dotted(reached)}`" if reached else "this spec"
    written = f"{where} has {quoted(known[:12], 'and')}" if known else f"{where} has no keys"
    return error(
        "E0210",
        f"`{shortened(found.text)}` refers to `{shortened(name)}`, which has no value",
        node.span,
        path=at,
        notes=(written, "references see only written values, not defaults"),
        help=near or "write the value at that key, or here",
    )


def _circle(tree: Node, paths: tuple[Path, ...]) -> Diagnostic:
    first, _ = descend(tree, paths[0])
    others = [
        beside("and here", descend(tree, each)[0].span, each)
        for each in paths[1:]
        if each != paths[0]
    ]
    return error(
        "E0211",
        f"references form a circle: {' → '.join(dotted(each) for each in paths)}",
        first.span,
        label="each needs the next one's value",
        path=paths[0],
        others=others,
        help="write one of the values out",
    )


def _too_long(path: Path, node: Node) -> Diagnostic:
    message = f"more than {MAX_CHAIN} references form a chain"
    return error("E0212", message, node.span, path=path, help="refer to the last value directly")


def _too_large(path: Path, node: Node) -> Diagnostic:
    message = f"references expand to more than {MAX_EXPANDED} characters"
    return error("E0212", message, node.span, path=path, help="write the value out")
