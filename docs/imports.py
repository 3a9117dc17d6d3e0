"""The imports of each tunec module, by its syntax tree: for the picture and the tests."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, TypeGuard

from docs.readme import ROOT

FOLDERS: Final = ("compiler", "schemas", "targets")
FACE: Final = {"tunec": "src/tunec/__init__.py", "tunec.__main__": "src/tunec/__main__.py"}

Statement = ast.Import | ast.ImportFrom


@cache
def modules() -> Mapping[str, Path]:
    """The file of each module by its name."""
    found = {name: ROOT / path for name, path in FACE.items()}
    for folder in FOLDERS:
        for file in (ROOT / folder).rglob("*.py"):
            parts = file.relative_to(ROOT).with_suffix("").parts
            found[".".join(("tunec", *parts)).removesuffix(".__init__")] = file
    return found


@cache
def statements(file: Path) -> tuple[tuple[Statement, bool], ...]:
    """The import statements of a file without those for types, and which ones are in a function."""
    return tuple(_among(ast.parse(file.read_bytes()).body, is_inside=False))


def _among(nodes: Iterable[ast.AST], *, is_inside: bool) -> Iterator[tuple[Statement, bool]]:
    for node in nodes:
        if isinstance(node, Statement):
            yield node, is_inside
        elif _is_for_types(node):
            yield from _among(node.orelse, is_inside=is_inside)
        elif isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _among(ast.iter_child_nodes(node), is_inside=is_inside or function)


def _is_for_types(node: ast.AST) -> TypeGuard[ast.If]:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def named(statement: Statement) -> Iterator[str]:
    """The modules that an import statement names."""
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
        return
    for alias in statement.names:
        inner = f"{statement.module}.{alias.name}"
        yield inner if inner in modules() else statement.module or ""


def imported(file: Path, *, lazy: bool) -> Iterator[str]:
    """The modules that a file imports; inside functions too if `lazy`."""
    for statement, is_inside in statements(file):
        if lazy or not is_inside:
            yield from named(statement)


@cache
def graph(*, lazy: bool) -> Mapping[str, frozenset[str]]:
    """The tunec modules that each module imports."""
    return {
        name: frozenset(imported(file, lazy=lazy)) & modules().keys() - {name}
        for name, file in modules().items()
    }
