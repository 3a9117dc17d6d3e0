"""What editors and agents ask, answered in this process by what the servers ask: `lsp`, `mcp`."""

import json
import os
from collections.abc import Sequence
from contextlib import redirect_stderr, suppress
from io import StringIO
from pathlib import Path

from lsprotocol.types import Position, Range
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import ValidationError, validate_call

from tunec.compiler.cli.main import answer, run
from tunec.compiler.cli.session import Session
from tunec.compiler.frontend.disk import Unreadable, read_bytes
from tunec.compiler.lsp import outline
from tunec.compiler.lsp.actions import actions
from tunec.compiler.lsp.completion import complete
from tunec.compiler.lsp.desk import Desk, Open
from tunec.compiler.lsp.hints import hints
from tunec.compiler.lsp.hover import hover
from tunec.compiler.lsp.links import links
from tunec.compiler.mcp.server import Done, Tools
from tunec.targets.registry import REGISTRY

_LONGEST = 255
"""Bytes of a file's name, by the system."""


def answered(words: Sequence[str]) -> int:
    """Call tunec, or ask one of its servers; the exit code."""
    match words:
        case ("lsp", name, line, column):
            return _edited(Path(name).resolve(), Position(_number(line), _number(column)))
        case ("mcp", name, asked):
            return _called(name, asked)
        case _:
            return run(list(words), REGISTRY, "0")


def _number(word: str) -> int:
    return int(word) if word.isdecimal() and len(word) < 6 else 0


def _edited(path: Path, at: Position) -> int:
    """Open a file and ask everything at a place of it."""
    if len(os.fsencode(path.name)) > _LONGEST:
        return 0  # no editor has such a file open
    desk = Desk(REGISTRY)
    content = b""
    with suppress(Unreadable):
        content = read_bytes(path)
    desk.open[path] = Open(content.decode("utf-8", "replace"), 1)
    desk.analyse(path)
    shown = desk.to_show(path)
    found, text = desk.seen(path), desk.text(path)
    assert found is not None
    place = text.place(at)
    told: list[object] = [*complete(found, text, *place, REGISTRY)]
    if found.is_known:
        told += [hover(found, *place), *links(found), *hints(found)]
        told += [*outline.symbols(found, text), *outline.folds(found, text)]
        told += [*actions(found, desk.encoding, Range(at, at), ())]
    for each in shown.values():
        for problem in each:
            assert problem.range.start <= problem.range.end, problem
            print(problem.message)
    return 0


def _called(name: str, asked: str) -> int:
    """Call a tool; what it refuses is told as an error."""
    try:
        arguments = json.loads(asked)
    except ValueError:
        return 0
    if name not in _TOOLS or not isinstance(arguments, dict):
        return 0
    try:
        result = validate_call(getattr(Tools(_done, Path()), name))(**arguments)
    except ToolError as refused:
        print(refused)
        return 1
    except ValidationError:
        print("the protocol's library refuses the arguments, in its own words")
        return 1
    print(ascii(result.model_dump_json()))
    return 0


_TOOLS = ("plan", "explain", "lint", "diff", "translate", "compile")


def _done(words: Sequence[str]) -> Done:
    out, err = StringIO(), StringIO()
    inner = Session(REGISTRY, "json", out, err)
    with redirect_stderr(err):
        code = answer(words, inner, "0")
    if code == 70:
        raise AssertionError(err.getvalue())
    return Done(code, out.getvalue(), err.getvalue())
