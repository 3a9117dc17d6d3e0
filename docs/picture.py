"""ARCHITECTURE.md with the picture of the architecture, drawn from the imports of the modules.

A box is a package of the compiler, or a target; the few modules outside of packages have a box if
others go through them. An arrow is an import, also one inside a function. An arrow that follows
from others is left out, and so is each arrow from a layer to the next, which the layers' own arrows
show.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from docs.imports import FACE, graph
from docs.readme import ROOT

LAYERS: Final = ("targets", "compiler", "schemas")
_FACE: Final = "src/tunec"
_ALONE: Final = frozenset({"compiler/driver", "compiler/emit", "compiler/target"})
"""Modules that have a box of their own."""
_PICTURE: Final = re.compile(r"(?<=^```mermaid\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)

Edges = Mapping[str, frozenset[str]]


def architecture() -> str:
    """ARCHITECTURE.md with its picture redrawn from the current imports."""
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    return _PICTURE.sub(lambda _: picture(), text)


def picture() -> str:
    """The architecture as a flow chart of Mermaid, which GitHub draws."""
    arrows = reduced(through(boxes(imports()), frozenset(drawn())))
    lines = ["flowchart TD"]
    for layer in LAYERS[:-1]:
        inside = {each: to for each, to in arrows.items() if each.startswith(f"{layer}/")}
        lines += [f"  subgraph {layer}", *_drawing(inside, layer), "  end"]
    lines.append(f'  face["{_FACE}"] --> targets --> compiler --> schemas')
    return "\n".join(lines) + "\n"


def _drawing(inside: Edges, layer: str) -> Iterator[str]:
    for each in sorted(inside):
        yield f"    {_id(each)}[{each.rpartition('/')[2]}]"
    for each, others in sorted(inside.items()):
        below = [_id(other) for other in sorted(others) if other.startswith(f"{layer}/")]
        if below:
            yield f"    {_id(each)} --> {' & '.join(below)}"


def _id(box: str) -> str:
    """The identifier of a box; a bare name such as `graph` or `end` would be a Mermaid keyword."""
    return box.replace("/", "_")


def drawn() -> Iterator[str]:
    """The boxes: each package of a layer, the modules of `_ALONE`, and schemas as one."""
    for layer in LAYERS[:-1]:
        for entry in sorted((ROOT / layer).iterdir()):
            name = f"{layer}/{entry.stem}"
            if (entry / "__init__.py").is_file() or name in _ALONE:
                yield name


# ── imports ──────────────────────────────────────────────────────────────────────────────────────


def imports() -> Edges:
    """The tunec modules that each module of a layer imports, by their paths without `.py`."""
    return {
        _path(name): frozenset(_path(other) for other in others if other not in FACE)
        for name, others in graph(lazy=True).items()
        if name not in FACE
    }


def _path(module: str) -> str:
    return module.removeprefix("tunec.").replace(".", "/")


def boxes(edges: Edges) -> Edges:
    """Imports between the packages of the layers, and modules directly in one."""
    found: dict[str, set[str]] = {}
    for each, others in edges.items():
        found.setdefault(_box(each), set()).update(map(_box, others))
    return {each: frozenset(others - {each}) for each, others in found.items()}


def _box(module: str) -> str:
    return "/".join(module.split("/")[:2])


def through(edges: Edges, kept: frozenset[str]) -> Edges:
    """The arrows between kept boxes; other boxes are replaced by the boxes behind them."""
    return {each: frozenset(_behind(each, edges, kept)) for each in edges if each in kept}


def _behind(box: str, edges: Edges, kept: frozenset[str]) -> Iterator[str]:
    for other in edges.get(box, ()):
        yield from (other,) if other in kept else _behind(other, edges, kept)


def reduced(edges: Edges) -> Edges:
    """The arrows that do not follow from the others."""
    behind = {each: frozenset(_reached(each, edges)) for each in edges}
    return {
        each: frozenset(to for to in others if not any(to in behind[o] for o in others - {to}))
        for each, others in edges.items()
    }


def _reached(box: str, edges: Edges) -> set[str]:
    found, left = set[str](), list(edges.get(box, ()))
    while left:
        each = left.pop()
        if each not in found:
            found.add(each)
            left += edges.get(each, ())
    return found
