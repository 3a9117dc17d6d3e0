"""What notebooks install, and the scripts of a whole project: the releases that its runs have."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import PurePath
from typing import Final

from msgspec import Struct

from tunec.compiler.frontend.notebook import read_notebook
from tunec.compiler.lints.environment import Pin
from tunec.compiler.lints.requirement_files import (
    COMMANDS,
    StatedRequirement,
    commands,
    rank_of,
    script,
    stated,
)
from tunec.schemas.frozen import replace

_KEPT: Final = re.compile(r"(?m)^[ \t]*#[ \t]*[!%][ \t]*(?=(?:uv )?pip3?[ \t]+install\b)")
"""A command of a notebook that is kept as a comment, so as not to install each time."""


def notebook_requirements(text: str, file: str) -> Iterator[StatedRequirement]:
    """What the cells of a notebook install; else the releases that comments of them name."""
    cells, _ = read_notebook(text, file)
    if cells is None:
        return
    live = list(script(cells.shell))
    found = {each.package for each in live}
    kept = (each for each in commands(_only_kept(cells.python)) if each.exact is not None)
    for each in (*live, *(each for each in kept if each.package not in found)):
        yield replace(each, line=cells.origin.lines[each.line - 1].places[0][0])


def _only_kept(text: str) -> str:
    lines = (line if _KEPT.match(line) else "" for line in text.split("\n"))
    return "\n".join(lines)


class Installed(Struct, frozen=True, dict=True):
    """What the scripts and the recipes of images install, wherever they lie in a project."""

    texts: Callable[[], Iterable[tuple[str, str]]]
    """The texts of a project by path, which are read when they are first needed."""

    def narrowed(self, pins: Mapping[str, Pin]) -> Mapping[str, Pin]:
        """The pins; of a range, the one release that all these commands name, if it is within."""
        if all(each.exact is not None for each in pins.values()):
            return pins
        ones = ((name, pin, self._one.get(name)) for name, pin in pins.items())
        return {name: one if one and _holds(pin, one) else pin for name, pin, one in ones}

    @cached_property
    def _one(self) -> Mapping[str, Pin]:
        every: dict[str, dict[str | None, Pin]] = {}
        for path, text in self.texts():
            for each in stated(path, text) if rank_of(PurePath(path).name) in COMMANDS else ():
                pin = Pin(each.package, (each.releases,), f"{os.path.relpath(path)}:{each.line}")
                every.setdefault(each.package, {})[each.exact] = pin
        alone = {name: pins for name, pins in every.items() if len(pins) == 1 and None not in pins}
        return {name: next(iter(pins.values())) for name, pins in alone.items()}


def _holds(pin: Pin, one: Pin) -> bool:
    is_range = pin.exact is None and not pin.is_own
    return is_range and one.exact is not None and pin.contains(one.exact)
