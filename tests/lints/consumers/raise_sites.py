"""Where the modules of a package refuse: every `raise`, `assert` and exit, with its words.

Runs inside an environment that holds the package, and reads its source without importing it.
Verb: `find`.
"""

import ast
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeGuard

Site = dict[str, Any]
_EXITS = ("sys.exit", "exit", "typer.Exit")


def find(question: Mapping[str, Any]) -> dict[str, list[Site]]:
    """The sites of each of `modules`, patterns of files below `package`, in their order."""
    spec = find_spec(question["package"])
    assert spec is not None
    assert spec.submodule_search_locations
    root = Path(next(iter(spec.submodule_search_locations)))
    found = {path for each in question["modules"] for path in root.glob(each)}
    sites = {path: sites_of(path.read_text("utf-8")) for path in sorted(found)}
    return {path.relative_to(root).as_posix(): held for path, held in sites.items() if held}


def sites_of(text: str) -> list[Site]:
    """The sites of a module's text, in their order."""
    return list(_sites(ast.parse(text), (), {}))


def _sites(node: ast.AST, names: tuple[str, ...], kept: Mapping[str, str]) -> Iterator[Site]:
    """What is below a node; `kept`: names of a function, and the words that they are given."""
    named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    inner = (*names, node.name) if named else names
    kept = _kept(node) if named else kept
    for field in ast.iter_fields(node):
        children = field[1] if isinstance(field[1], list) else [field[1]]
        for at, child in enumerate(children):
            if isinstance(child, ast.stmt) and _refuses(child):
                before = children[at - 1] if at else None
                yield {"in": ".".join(inner), "text": _text(child, before, kept)}
            if isinstance(child, ast.AST):
                yield from _sites(child, inner, kept)


def _kept(function: ast.AST) -> dict[str, str]:
    made = (each for each in ast.walk(function) if isinstance(each, ast.Assign))
    named = ((at.id, _words(each.value)) for each in made for at in each.targets if _is_name(at))
    return {name: words for name, words in named if words}


def _is_name(node: ast.AST | None) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name)


def _refuses(node: ast.stmt) -> bool:
    if isinstance(node, ast.Raise):
        return node.exc is not None
    is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    return isinstance(node, ast.Assert) or (is_call and ast.unparse(node.value.func) in _EXITS)


def _text(node: Any, before: ast.AST | None, kept: Mapping[str, str]) -> str:
    """The words of a site: its own, those of the line above it, and at last its source."""
    if isinstance(node, ast.Assert):
        words = _words(node.msg) if node.msg is not None else ""
        return " ".join(f"{words} assert {ast.unparse(node.test)}".split())
    value = node.exc if isinstance(node, ast.Raise) else node.value
    said = " ".join(map(_words, value.args)) if isinstance(value, ast.Call) else ""
    named = [value, *value.args] if isinstance(value, ast.Call) else [value]
    if not any(map(str.isalpha, said)):
        said = " ".join(kept.get(each.id, "") for each in named if _is_name(each))
    if not any(map(str.isalpha, said)):
        said = _words(before) if isinstance(before, ast.Expr | ast.Assign) else ""
    return " ".join(said.split()) or ast.unparse(node)


def _words(node: ast.AST | None) -> str:
    """The text of an expression, with `{}` where a value is put in."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.FormattedValue):
        return "{}"
    return "".join(map(_words, ast.iter_child_nodes(node))) if node is not None else ""


VERBS = {"find": find}
