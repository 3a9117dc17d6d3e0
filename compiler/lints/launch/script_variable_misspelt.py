"""A variable that a script sets under one name and uses under another."""

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Final

from tunec.compiler.diagnostics.wording import nearest
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.lines import at_offset, scripts
from tunec.compiler.lints.launch.variables import KNOWN
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_SET: Final = re.compile(r"(?:^|[\s;({])([A-Za-z_]\w*)(?:\[\w*\])?\+?=", re.MULTILINE)
_LOOPED: Final = re.compile(r"\b(?:for|select)\s+([A-Za-z_]\w*)\b")
_NAMED: Final = re.compile(r"\$\{?[#!]?([A-Za-z_]\w*)")
"""A variable in any form: `$A`, `${A[@]}`, `${A:-otherwise}`."""
_USED: Final = re.compile(r"(?<!\\)\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
"""One that stands for its value alone."""
_ELSEWHERE: Final = re.compile(
    r"^\s*(?:source|\.)\s|\beval\b|\bread\b|\bgetopts\b|\bdeclare\b|\bmapfile\b", re.MULTILINE
)
_DIGITS: Final = re.compile(r"\d")
"""Names that differ in their numbers alone are of two things."""
_LIKE: Final = 0.85


def _check(run: Run) -> Iterator[Finding]:
    for document in scripts(run):
        if _ELSEWHERE.search(document.text) is None:
            yield from _of(document)


def _of(document: Document) -> Iterator[Finding]:
    """Names that nothing sets, beside a like one that nothing uses."""
    assigned = {*_SET.findall(document.text), *_LOOPED.findall(document.text)}
    used = [(found, found[1] or found[2]) for found in _USED.finditer(document.text)]
    idle = assigned - set(_NAMED.findall(document.text)) - KNOWN
    told = set[str]()
    for found, name in used:
        near = _near(name, idle) if name not in assigned and name not in KNOWN | told else None
        if near is not None:
            told.add(name)
            yield Finding(
                f"${name} is not set, and {near} is not used",
                (at_offset(document, found.start(), len(found[0]), "nothing"),),
                ("the shell puts nothing there: the flag before it takes the next word, or none",),
                f"did you mean ${near}?",
            )


def _near(name: str, idle: set[str]) -> str | None:
    for each in nearest(name, sorted(idle))[:1]:
        are_alike = SequenceMatcher(None, name.lower(), each.lower()).ratio() >= _LIKE
        if are_alike and _DIGITS.sub("", name) != _DIGITS.sub("", each):
            return each
    return None


RULE = Rule(
    name="script-variable-misspelt",
    severity="warning",
    consequence="parse",
    consumers=("bash",),
    sources=(
        (
            "Bash reference manual 5.2, 3.5.3 Shell Parameter Expansion: an unset parameter is the "
            "null string; 3.5.7 Word Splitting: an unquoted null argument is removed"
        ),
    ),
    check=_check,
)
