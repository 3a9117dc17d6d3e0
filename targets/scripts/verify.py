"""How bash and the launchers are run on a launch script with flags, and the places of the flags."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from tunec.compiler.target import Found
from tunec.compiler.verify.contract import Case, NotAsked, Program
from tunec.targets.launch.script import found_in, launched_words, parse
from tunec.targets.launch.verify import NODE, Start, bash_program, launcher_programs
from tunec.targets.launch.words import commands
from tunec.targets.scripts.command import FLAGS, Style, before_flags

_VARIABLE: Final = re.compile(r"\$[\w{(]")


def shell_programs(name: str, style: Style) -> tuple[Program, ...]:
    """bash and the launchers for the launch script of that name."""

    def places(text: str, file: str) -> Mapping[str, Found]:
        return {**found_in(text, file), **_flags(text, file, style)}

    start = Start(name, lambda case: case.text(name), NODE, own=before_flags)
    return (bash_program(name, places), *launcher_programs(start, "bash -n"))


def _flags(text: str, file: str, style: Style) -> dict[str, Found]:
    """The place of each flag, by its key."""
    return {
        f"{FLAGS}.{style.known_as(word.text.removeprefix('--').partition('=')[0])}": Found(
            word.text, word.span
        )
        for words in commands(text, file)
        for word in words
        if word.text.startswith("--")
    }


def settling(
    sources: Callable[[], Mapping[str, str]],
    program: str,
    argv: tuple[str, ...] = (),
    config: str | None = None,
    data: str | None = None,
) -> dict[str, Any]:
    """The question about a command of kohya's programs, with the texts of its files."""
    told = {"program": program, "argv": list(argv), "config": config, "data": data}
    return {"verb": "settle", "sources": sources(), **told}


def flag_words(case: Case, name: str) -> list[str]:
    """The words from the script's first flag on, as the shell passes them.

    Raises NotAsked if they contain a variable that only a running shell knows.
    """
    text = case.text(name)
    words = launched_words(text, name, NODE)
    script = parse(text).get("script", [])
    own = len(before_flags(script))
    flags = list(words[len(words) - len(script) + own :]) if script else []
    if any(_VARIABLE.search(word) for word in flags):
        raise NotAsked(f"the command has variables that only the cluster knows: {flags}")
    return flags
