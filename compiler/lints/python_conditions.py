"""Under which conditions a statement of a Python file stands, and whether a command meets them.

What stands under `if args.use_lora:` happens in some runs of a script only. That it does is known
where a command of the repository gives the flag.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from tunec.schemas.caches import cached

_OFF: Final = r"(?!\s+[\"']?(?:[Ff]alse|0|no|none|None)\b)"
_MET: Final = re.compile(
    r"__name__|\bdo_train\b|local_rank|process_index|is_main|is_world|pad_token|\bis_\w+_available\b"
)
"""What a condition asks that every training run meets, in one of its processes at least."""


class _Branch(Struct, frozen=True):
    """A branch: its lines, what it asks, and whether it is taken if that is so."""

    first: int
    last: int
    test: ast.expr
    is_then: bool


def is_reached(text: str, line: int, commands: Iterable[str]) -> bool:
    """Whether a line of a file stands under no condition, or under those that a command meets.

    A function that is called under a condition alone stands under it too. True if the text is no
    Python.
    """
    given = "\n".join(commands)
    conditions = [each for each in _conditions(text) if each.first <= line <= each.last]
    return all(_is_met(each, given) for each in conditions)


def _is_met(branch: _Branch, commands: str) -> bool:
    asked = ast.unparse(branch.test)
    if isinstance(branch.test, ast.Constant) or _MET.search(asked):
        return True
    if not branch.is_then or not isinstance(branch.test, ast.Attribute | ast.Name):
        return False
    name = asked.rpartition(".")[2].replace("_", "[-_]")
    return re.search(rf"--{name}(?![\w-]){_OFF}", commands) is not None


@cached(64)
def _conditions(text: str) -> tuple[_Branch, ...]:
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    branches = tuple(_branches(module))
    return branches + tuple(_of_calls(module, branches))


def _branches(module: ast.Module) -> Iterator[_Branch]:
    for each in ast.walk(module):
        if isinstance(each, ast.If):
            for part, is_then in ((each.body, True), (each.orelse, False)):
                if part and not (not is_then and _asks_on(part)):
                    last = part[-1].end_lineno or part[-1].lineno
                    yield _Branch(part[0].lineno, last, each.test, is_then)


def _asks_on(part: list[ast.stmt]) -> bool:
    """Whether an `else` is an `elif`, whose own branch says what it asks."""
    return len(part) == 1 and isinstance(part[0], ast.If)


def _of_calls(module: ast.Module, branches: tuple[_Branch, ...]) -> Iterator[_Branch]:
    """Functions of the file all of whose calls stand under a condition."""
    lines: dict[str, list[int]] = {}
    for each in ast.walk(module):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name):
            lines.setdefault(each.func.id, []).append(each.lineno)
    for function in module.body:
        called = lines.get(getattr(function, "name", ""), [])
        if isinstance(function, ast.FunctionDef) and called:
            around = [[b for b in branches if b.first <= at <= b.last] for at in called]
            if all(around):
                last = function.end_lineno or function.lineno
                innermost = max(around[0], key=lambda branch: branch.first)
                yield _Branch(function.lineno, last, innermost.test, innermost.is_then)
