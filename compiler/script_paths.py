"""Paths that a script of the user's own names, seen from the root of the bundle, where it starts.

A script that was written beside its data names them from there. Its own arguments are rewritten,
what stands inside it is not.
"""

import ast
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.wording import joined
from tunec.compiler.frontend.disk import Unreadable
from tunec.compiler.frontend.load import Loaded
from tunec.compiler.frontend.project import require_inside

_MOST: Final = 1 << 20
"""Most bytes of a script that is looked at."""
_LONGEST: Final = 200
_NAMED: Final = 3
_HERE: Final = "."


def lost_paths(loaded: Loaded, spec: str) -> Iterator[Diagnostic]:
    """A warning for files and folders that the run's script names and that its start loses.

    `spec` is the spec's directory as the bundle's root sees it.
    """
    script = loaded.spec.run.script if loaded.spec is not None else None
    if script is None or not script.endswith(".py") or spec == _HERE:
        return
    tree = _tree(loaded.base, script)
    named = sorted(set(_relative(tree))) if tree is not None else []
    folders = (loaded.base, (loaded.base / script).parent)
    lost = [each for each in named if any(_is_there(loaded.base, at / each) for at in folders)]
    if lost:
        yield Diagnostic(
            "script-paths-elsewhere",
            "warning",
            f"{script} names {joined(lost[:_NAMED], 'and')}, and run.sh starts it in the bundle's "
            "folder",
            (Label("this script", path="run.script"),),
            ("arguments are rewritten for that folder, and what stands in the script is not",),
            help="pass paths to it as `run.arguments`, or let it begin them with "
            "`Path(__file__).parent`",
        )


def _tree(base: Path, script: str) -> ast.Module | None:
    """The script below the spec's directory; None if it cannot be read."""
    try:
        file = require_inside(base / script, base.resolve())
        if not file.is_file() or file.stat().st_size > _MOST:
            return None
        return ast.parse(file.read_text("utf-8"))
    except (Unreadable, OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _relative(tree: ast.Module) -> Iterator[str]:
    """Texts given to calls, alone or in lists and mappings, that may be relative paths."""
    for call in (each for each in ast.walk(tree) if isinstance(each, ast.Call)):
        if _is_joined(call):
            continue
        for given in (*call.args, *(each.value for each in call.keywords)):
            for each in (given, *_parts(given)):
                if isinstance(each, ast.Constant) and _may_be_path(each.value):
                    yield str(each.value)


def _is_joined(call: ast.Call) -> bool:
    """Whether a call makes a part of a path, or is a method of one: `folder.joinpath("data")`."""
    named = call.func
    name = named.attr if isinstance(named, ast.Attribute) else getattr(named, "id", "")
    return name in ("join", "joinpath", "add_argument", "print")


def _parts(given: ast.expr) -> Iterator[ast.expr]:
    """What stands in lists and mappings, and in those within them."""
    inner: list[ast.expr] = []
    if isinstance(given, ast.List | ast.Tuple):
        inner = given.elts
    elif isinstance(given, ast.Dict):
        inner = given.values
    for each in inner:
        yield from (each, *_parts(each))


def _may_be_path(value: object) -> bool:
    """Whether a text is written as a path of a file, or of a folder of two parts or more."""
    if not isinstance(value, str) or not 0 < len(value) < _LONGEST or "://" in value:
        return False
    is_local = not value.startswith(("/", "~")) and "\0" not in value and "\n" not in value
    return is_local and ("/" in value or PurePosixPath(value).suffix != "")


def _is_there(base: Path, path: Path) -> bool:
    """Whether a file or folder exists below the spec's directory."""
    try:
        return require_inside(path, base.resolve()).exists()
    except (Unreadable, OSError, ValueError):
        return False
