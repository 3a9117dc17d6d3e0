"""The one script of a trainer that passes all of its flags: its rows, how it is told, its file."""

from collections.abc import Callable, Iterable
from typing import Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Dialect, Entry, File, Json
from tunec.targets.scripts.blocks import Check, below
from tunec.targets.scripts.command import FLAGS, Style, parser, renderer, starting
from tunec.targets.scripts.script import script_row

_FORMAT: Final = "shell"


def command_rows(
    launchers: Iterable[str],
    script: Callable[[Plan], str],
    source: str,
    start: Entry,
    flags: Iterable[Entry],
) -> tuple[Entry, ...]:
    """The rows of a script that starts one program of a repository with all of its flags.

    `script` is the program of a plan where the spec names it, `start` the row that writes it, and
    `source` where it is started from.
    """
    return (
        *starting(*launchers),
        script_row(script, source),
        start,
        *(below(FLAGS, each) for each in flags),
    )


def passing(*marks: str) -> Callable[[Json], bool]:
    """Whether a script passes one of these flags, which no other program has."""

    def recognise(document: Json) -> bool:
        flags = document.get(FLAGS) if isinstance(document, dict) else None
        return isinstance(flags, dict) and not flags.keys().isdisjoint(marks)

    return recognise


def command_file(
    name: str,
    entries: tuple[Entry, ...],
    style: Style,
    recognise: Callable[[Json], bool],
    check: Check = lambda _plan, _dialect: (),
    names: tuple[str, ...] = (),
    schema: Callable[[Dialect], str] | None = None,
) -> File:
    """A script as a file of a target; `schema` is that of its flags, where it knows every one."""
    return File(
        name,
        _FORMAT,
        entries,
        recognise,
        render=renderer(style),
        parse=parser(style),
        check=check,
        names=names,
        block=None if schema is None else (FLAGS, schema),
    )
