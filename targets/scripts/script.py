"""Rows that say which script of the repository runs, and what a launch script then stands for."""

import shlex
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any

from tunec.compiler.ir.plan import Plan
from tunec.compiler.start_commands import UNNAMED
from tunec.compiler.target import Cannot, Entry, Json
from tunec.targets.words import words_of


def names(command: str, script: str) -> bool:
    """Whether a command is that script, wherever its folder is, with no argument of its own."""
    words = words_of(command)
    return len(words) == 1 and PurePosixPath(words[0]).name == PurePosixPath(script).name


def script_row(script: Callable[[Plan], str], source: str) -> Entry:
    """The row of `launch.script` where the spec names the trainer's own script."""

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
    """Why another script cannot be started: this target is that one script."""
    return Cannot(f"{name} starts its own script", loses=True, harmless=(UNNAMED,))


def started(plan: Plan, script: str) -> str:
    """The script as it is started: as the spec names it, or by its own name."""
    return words_of(plan.launch.script)[0] if names(plan.launch.script, script) else script
