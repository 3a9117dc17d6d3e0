"""What notebooks install, and the scripts of a whole project: the releases that its runs have."""

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import PurePath
from typing import Final

from msgspec import Struct

from tunec.compiler.frontend.notebook import read_notebook
from tunec.compiler.frontend.python_origins import tree_of
from tunec.compiler.lints.environment import Pin
from tunec.compiler.lints.requirement_files import (
    COMMANDS,
    Read,
    StatedRequirement,
    commands,
    listed,
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


_BUILDS: Final[Mapping[str, Read]] = {
    **dict.fromkeys(("pip_install", "uv_pip_install"), lambda word: listed([(word, 1)])),
    **dict.fromkeys(("run_commands", "dockerfile_commands"), commands),
}
"""The methods by which modal 1.6.4 builds an image (image.py `Image`), with what each reads of its
texts, or lists of them."""
_IMAGE: Final = re.compile(rf"\.(?:{'|'.join(_BUILDS)})\(")


def image_requirements(text: str) -> Iterator[StatedRequirement]:
    """What a script installs in the images that it builds; what it composes is left out."""
    tree = tree_of(text) if _IMAGE.search(text) else None
    for call in () if tree is None else ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            read = _BUILDS.get(call.func.attr)
            yield from () if read is None else _of_texts(call, read)


def _of_texts(call: ast.Call, read: Read) -> Iterator[StatedRequirement]:
    for each in (node for given in call.args for node in ast.walk(given)):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            for found in read(each.value):
                yield replace(found, line=found.line + each.lineno - 1)


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
    def of_images(self) -> Mapping[str, Pin]:
        """The releases that scripts install in the images they build, if each is the only one."""
        programs = ((path, text) for path, text in self.texts() if path.endswith(".py"))
        return _ones((path, each) for path, text in programs for each in image_requirements(text))

    @cached_property
    def _one(self) -> Mapping[str, Pin]:
        recipes = ((p, t) for p, t in self.texts() if rank_of(PurePath(p).name) in COMMANDS)
        return _ones((path, each) for path, text in recipes for each in stated(path, text))


def _ones(found: Iterable[tuple[str, StatedRequirement]]) -> Mapping[str, Pin]:
    """The pin of each package of which only one release is named, and none without a release."""
    every: dict[str, dict[str | None, Pin]] = {}
    for path, each in found:
        pin = Pin(each.package, (each.releases,), f"{os.path.relpath(path)}:{each.line}")
        every.setdefault(each.package, {})[each.exact] = pin
    alone = {name: pins for name, pins in every.items() if len(pins) == 1 and None not in pins}
    return {name: next(iter(pins.values())) for name, pins in alone.items()}


def _holds(pin: Pin, one: Pin) -> bool:
    is_range = pin.exact is None and not pin.is_own
    return is_range and one.exact is not None and pin.contains(one.exact)
