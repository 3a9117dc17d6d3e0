"""What an answer is a function of, digested: the packages, the script's source, the question."""

import ast
import hashlib
import json
import tokenize
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tunec.compiler.consumers import runner

_LETTERS: Final = 20
_ROOT: Final = Path(__file__).parents[2]
_PACKAGE: Final = Path(runner.__file__).parents[2]
_TRACING: Final = _PACKAGE / "compiler" / "tracing"


def digest(pins: Sequence[str], script: str, root: Path, question: str) -> str:
    """The name of an answer; `question` is JSON without the paths of this machine."""
    return _digest([packages(tuple(pins)), source(script, root), question])


def _digest(what: Any) -> str:
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:_LETTERS]


@cache
def packages(pins: tuple[str, ...]) -> list[str]:
    """The packages of an environment: its pins, and of those below them what is pinned as well.

    Other packages of the interpreter, such as pydantic, are of whatever release the installer
    chose: `just nightly` finds out whether an answer depends on one.
    """
    own = {canonicalize_name(pin.partition("==")[0]) for pin in pins}
    shared = {name: found for name, found in _shared().items() if name not in own}
    return sorted([*pins, *(f"{name}=={found}" for name, found in shared.items())])


@cache
def _shared() -> Mapping[str, str]:
    """The releases here of what the extra `consumers` names.

    It is read where it is written: an environment made earlier may know of another list.
    """
    written = tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))
    named = map(Requirement, written["project"]["optional-dependencies"]["consumers"])
    return {canonicalize_name(each.name): version(each.name) for each in named}


@cache
def source(script: str, root: Path) -> str:
    """The digest of a script's text with that of every module below `root` that it imports."""
    pending, seen = {_file(root, script)}, dict[Path, str]()
    while pending:
        file = pending.pop()
        if file is None or file in seen:
            continue
        text = file.read_text(encoding="utf-8")
        seen[file] = code(text)
        pending |= {_file(root, name) for name in _imported(text)}
    beside = code(Path(runner.__file__).read_text(encoding="utf-8"))
    return _digest([*sorted(seen.values()), beside])


@cache
def code(text: str) -> str:
    """A module's text without what says nothing to the interpreter: comments, bare texts, blanks.

    A docstring that the module itself reads, as `__doc__`, stays.
    """
    lines = text.split("\n")
    for line, column in _comments(text):
        lines[line - 1] = lines[line - 1][:column]
    for each in () if "__doc__" in text else ast.walk(ast.parse(text)):
        if _is_bare_text(each):
            lines[each.lineno - 1 : each.end_lineno] = [""] * (each.end_lineno - each.lineno + 1)
    return "\n".join(kept for line in lines if (kept := line.rstrip()))


def _comments(text: str) -> Iterator[tuple[int, int]]:
    tokens = tokenize.generate_tokens(StringIO(text).readline)
    return (each.start for each in tokens if each.type == tokenize.COMMENT)


def _is_bare_text(node: ast.AST) -> bool:
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
        return False
    return isinstance(node.value.value, str)


def _file(root: Path, name: str) -> Path | None:
    """The file of a module below the package at `root`; None where it is none of those."""
    place = root.joinpath(*name.split(".")[1:])
    if name.partition(".")[0] not in (root.name, "tunec") or place == root:
        return None
    found = (place / "__init__.py", place.with_name(f"{place.name}.py"))
    return next((each for each in found if each.is_file()), None)


def _imported(text: str) -> Iterator[str]:
    """The names that may be modules, packages above them included."""
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:depth]) for depth in range(2, len(parts) + 1))


def of_trace(pins: Sequence[str], file: Path, question: str) -> str:
    """The name of a trace that a function in `file` takes itself."""
    return _digest([list(pins), tracer(file), question])


@cache
def tracer(file: Path) -> str:
    """The digest of a module of tests and of those beside it, and of the tracer that they import.

    Of the tracer that is all of `compiler.tracing` that is reached, and the modules that this
    imports from elsewhere. What lies below those is left to `just nightly`: the account, which a
    trace judges and does not follow, would make every trace a new one.
    """
    pending, seen = {file}, dict[Path, str]()
    while pending:
        at = pending.pop()
        text = at.read_text(encoding="utf-8")
        seen[at] = code(text)
        if at.is_relative_to(_PACKAGE) and not at.is_relative_to(_TRACING):
            continue
        pending |= {each for each in _reached(at, text) if each not in seen}
    return _digest([seen[each] for each in sorted(seen)])


def _reached(file: Path, text: str) -> Iterator[Path]:
    """What a module imports: of the package, for tests of the tracer alone; or from beside it."""
    in_tests = not file.is_relative_to(_PACKAGE)
    for name in _imported(text):
        found = _file(_PACKAGE, name)
        beside = file.with_name(f"{name.partition('.')[0]}.py")
        if found is not None and not (in_tests and not found.is_relative_to(_TRACING)):
            yield found
        elif in_tests and beside.is_file():
            yield beside
