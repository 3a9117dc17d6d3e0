"""The single file of a trainer with flags: its rows, its script, and rows under a prefix."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from packaging.version import Version

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.emit import validator, write_values
from tunec.compiler.ir.plan import Plan
from tunec.compiler.start_commands import UNNAMED
from tunec.compiler.target import Cannot, Dialect, Entry, File, Json
from tunec.schemas.frozen import replace
from tunec.targets.scripts.command import FLAGS, Style, parser, renderer, starting
from tunec.targets.words import words_of


def names(command: str, script: str) -> bool:
    """Whether a command is that script, in any folder, without arguments."""
    words = words_of(command)
    return len(words) == 1 and PurePosixPath(words[0]).name == PurePosixPath(script).name


def script_row(script: Callable[[Plan], str], source: str) -> Entry:
    """The row of `launch.script` if the spec names the trainer's own script."""

    def write(plan: Plan) -> Mapping[str, Json]:
        return {"script": words_of(plan.launch.script)}

    def read(found: Mapping[str, Json]) -> Mapping[str, Any]:
        return {"launch.script": shlex.join(found["script"][:1])}

    return Entry(
        ("script",),
        ("launch.script",),
        write,
        read,
        source,
        when=lambda plan: names(plan.launch.script, script(plan)),
    )


def own_script(name: str) -> Cannot:
    """The reason why another script cannot be started: the target is that one script."""
    return Cannot(f"{name} starts its own script", loses=True, harmless=(UNNAMED,))


def started(plan: Plan, script: str) -> str:
    """The script to start: as the spec names it, or by its own name."""
    return words_of(plan.launch.script)[0] if names(plan.launch.script, script) else script


SchemaOf = Callable[[Dialect], str | None]
Check = Callable[[Plan, Dialect], Iterable[Diagnostic]]


def below(prefix: str, entry: Entry) -> Entry:
    """A copy of a row whose keys are in a block of the file, below `prefix`."""
    dotted = f"{prefix}."

    def write(plan: Plan) -> Mapping[str, Json]:
        return {dotted + key: value for key, value in entry.write(plan).items()}

    def read(found: Mapping[str, Json]) -> Mapping[str, Any]:
        return entry.read({key.removeprefix(dotted): value for key, value in found.items()})

    return replace(entry, keys=tuple(dotted + key for key in entry.keys), write=write, read=read)


def without(entries: Iterable[Entry], *names: str) -> tuple[Entry, ...]:
    """The rows that have none of the keys or slots in `names`."""
    return tuple(each for each in entries if not {*each.keys, *each.slots}.intersection(names))


def within(entries: Iterable[Entry], releases: Iterable[str]) -> tuple[Entry, ...]:
    """The rows that apply to some release of the target's own package."""
    versions = [Version(each) for each in releases]
    return tuple(each for each in entries if any(each.holds_at(version) for version in versions))


def checked(
    name: str,
    entries: Sequence[Entry],
    block: str,
    schema: SchemaOf,
    *,
    others: Callable[[str], bool] = lambda _: True,
) -> Check:
    """A check of a block of a file by its own schema.

    Only the block's keys that `others` accepts are checked, since a command line mixes the flags of
    two classes.
    """

    def check(plan: Plan, dialect: Dialect) -> Iterator[Diagnostic]:
        rows = (each for each in entries if each.holds_in(dialect) and each.when(plan))
        found = write_values(rows, plan).get(block)
        path = schema(dialect)
        if path is None or not isinstance(found, Mapping):
            return
        values = {key: value for key, value in found.items() if others(key)}
        for fault in validator(path).iter_errors(values):
            yield _fault(name, block, path, fault)

    return check


def _fault(name: str, block: str, schema: str, fault: Any) -> Diagnostic:
    where = ".".join(str(part) for part in (block, *fault.absolute_path))
    return Diagnostic(
        "E0904",
        "error",
        f"{name} is not valid for its reader: {fault.message}",
        (Label("in the emitted file", path=where),),
        (f"by the reader's own schema, {schema}",),
    )


def every(*checks: Check) -> Check:
    """All checks of a file, one after another."""

    def check(plan: Plan, dialect: Dialect) -> Iterator[Diagnostic]:
        for each in checks:
            yield from each(plan, dialect)

    return check


_FORMAT: Final = "shell"


def command_rows(
    launchers: Iterable[str],
    script: Callable[[Plan], str],
    source: str,
    start: Entry,
    flags: Iterable[Entry],
) -> tuple[Entry, ...]:
    """The rows of a script that starts one program of a repository with all its flags.

    `script` is the program of a plan if the spec names it, `start` the row that writes it, and
    `source` its citation.
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
    schema: SchemaOf = lambda _: None,
) -> File:
    """A script as a file of a target; `schema` is that of its flags, if all are known."""
    return File(
        name,
        _FORMAT,
        entries,
        recognise,
        render=renderer(style),
        parse=parser(style),
        check=check,
        names=names,
        block=(FLAGS, schema),
    )
