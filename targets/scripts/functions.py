"""Functions of a source tree that is no package, each taken from its module and run alone.

Only the standard library is imported here: it runs in a consumer's environment. A name that a
function uses is looked up in its module's text, then in the modules that the text imports from the
same tree; names from outside the tree are given, or replaced by `Nothing`.
"""

import argparse
import ast
import importlib
from collections.abc import Callable, Mapping
from typing import Any

Text = Callable[[str], str | None]
"""The text of a file of the tree, by its path; None if there is none."""
_OUTSIDE = ("argparse", "ast", "functools", "os", "pathlib", "typing", "dataclasses", "textwrap")
_GIVEN = ("random", "time", "toml", "voluptuous")


class Nothing:
    """A stand-in for an absent module: its attributes, items and calls are `Nothing` too."""

    __name__ = "Nothing"

    def __getattr__(self, name: str) -> "Nothing":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: Any, **__: Any) -> "Nothing":
        """Return itself."""
        return self

    def __getitem__(self, _: Any) -> "Nothing":
        return self

    def __mro_entries__(self, _: Any) -> tuple[type, ...]:
        """No base class for a class that derives from it."""
        return ()


class Tree:
    """The modules of a tree, by their dotted names."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self._held: dict[str, Module] = {}

    def module(self, name: str) -> "Module | None":
        """A module of the tree; None if the tree does not have it."""
        if name not in self._held:
            text = self._text(f"{name.replace('.', '/')}.py")
            if text is None:
                return None
            self._held[name] = Module(self, name, text)
        return self._held[name]


class Module(dict[str, Any]):
    """The names that a module defines, each run at first use."""

    def __init__(self, tree: Tree, name: str, text: str) -> None:
        super().__init__()
        self._tree, self._package = tree, name.rpartition(".")[0]
        self._found: dict[str, ast.stmt] = {}
        self._imports: dict[str, tuple[str, str | None]] = {}
        for each in ast.parse(text).body:
            self._read(each)

    def _read(self, node: ast.stmt) -> None:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            self._found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            self._found |= {each.id: node for each in targets if isinstance(each, ast.Name)}
        elif isinstance(node, ast.Import):
            names = ((each.asname or each.name, each.name) for each in node.names)
            self._imports |= {name: (whole, None) for name, whole in names}
        elif isinstance(node, ast.ImportFrom):
            inside = f"{self._package}." if node.level and self._package else ""
            within = f"{inside}{node.module or ''}".strip(".")
            named = {each.asname or each.name: (within, each.name) for each in node.names}
            if "*" in named and within in _OUTSIDE:
                every = importlib.import_module(within).__all__
                named = {each: (within, each) for each in every}
            self._imports |= named

    def __missing__(self, name: str) -> Any:
        if name in self._found:
            node = self._found.pop(name)
            for used in _names_at_once(node):
                self.get_or_none(used)
            body = ast.Module(body=[node], type_ignores=[])
            exec(compile(body, "module.py", "exec"), self)  # noqa: S102  pinned by its content
            return super().__getitem__(name)
        if name not in self._imports:
            raise KeyError(name)
        self[name] = self._imported(*self._imports[name])
        return self[name]

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def get_or_none(self, name: str) -> Any:
        """The value of a name; None if the module does not have it."""
        return self[name] if name in self or name in {**self._found, **self._imports} else None

    def _imported(self, module: str, name: str | None) -> Any:
        own = self._tree.module(module)
        whole = _outside(module) if own is None else own
        if name is None:
            return whole
        inner = self._tree.module(f"{module}.{name}" if module else name)
        return getattr(whole, name) if inner is None else inner


def _names_at_once(node: ast.stmt) -> set[str]:
    """Names that a definition uses when it is run; a class's body is looked up by itself."""
    outer: list[ast.AST | None] = [node]
    if isinstance(node, ast.FunctionDef):
        outer = [*node.decorator_list, node.args, node.returns]
    walked = (each for one in outer if one is not None for each in ast.walk(one))
    return {each.id for each in walked if isinstance(each, ast.Name)}


def _outside(name: str) -> Any:
    return importlib.import_module(name) if name in (*_OUTSIDE, *_GIVEN) else Nothing()


# ── parsers ──────────────────────────────────────────────────────────────────────────────────────


def flags(parser: argparse.ArgumentParser) -> dict[str, dict[str, Any]]:
    """Each flag of a parser: its type, its number of values, its choices and its default."""
    return {
        each.dest: _flag(each)
        for each in parser._actions  # noqa: SLF001  argparse has no other way
        if each.dest != "help"
    }


def _flag(action: argparse.Action) -> dict[str, Any]:
    found: dict[str, Any] = {"type": _type(action)}
    if action.nargs in ("*", "+") or (isinstance(action.nargs, int) and action.nargs):
        found["many"] = True
    if action.choices:
        found["choices"] = [each for each in action.choices if each is not None]
    if action.default is not None and action.default is not False:
        found["default"] = action.default
    if action.required:
        found["required"] = True
    return found


def _type(action: argparse.Action) -> str:
    if action.nargs == 0:
        return "switch"
    name: str = getattr(action.type, "__name__", "str")
    return name if name in ("int", "float", "int_or_float") else "str"


def tree_of(texts: Mapping[str, str]) -> Tree:
    """A tree of files, by their paths."""
    return Tree(texts.get)
