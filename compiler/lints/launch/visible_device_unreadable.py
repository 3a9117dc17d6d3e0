"""CUDA_VISIBLE_DEVICES in a form that is not read to its end."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.frontend.shell_launch import STARTERS
from tunec.compiler.lints.launch.scripts import launches, listed, variable
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_WHOLE: Final = re.compile(r"\d+|(?:GPU|MIG)-.+")
_BEGINNING: Final = re.compile(r"\d+")
_NONE: Final = frozenset({"-1", "", "none", "void", "nodevfiles"})
"""What people write for no device at all."""


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run):
        place, names = (found := variable(document, "CUDA_VISIBLE_DEVICES")), listed(found)
        if place is None or names is None or document.value("launcher") in STARTERS:
            continue
        odd = next((at for at, each in enumerate(names) if not _WHOLE.fullmatch(each)), None)
        if odd is not None and names[odd].lower() not in _NONE:
            yield _finding(place, names, odd)


def _finding(place: Place, names: tuple[str, ...], odd: int) -> Finding:
    begins = _BEGINNING.match(names[odd])
    left = [*names[:odd], *([begins[0]] if begins else [])]
    if begins:
        left += names[odd + 1 :] if all(map(_WHOLE.fullmatch, names[odd + 1 :])) else []
    told = f"what is left is {','.join(left)}" if left else "no device is left"
    return Finding(
        f"CUDA_VISIBLE_DEVICES={place.value}: `{names[odd]}` is no number of a device",
        (place.label(told),),
        ("a word is read as far as it is a number; the list ends at one that is none",),
        "list the numbers: 0,1,2,3",
        consequence="silent" if left else "init",
    )


RULE = Rule(
    name="visible-device-unreadable",
    severity="error",
    consequence="init",
    consumers=("torch",),
    sources=(
        "torch 2.13.0 cuda/__init__.py `_parse_visible_devices`: strtoul, as CUDA has it",
        "CUDA C++ Programming Guide 12.6, CUDA Environment Variables",
    ),
    check=_check,
)
