"""A variable that programs read is set for the shell alone."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.frontend.shell_words import Command, Word
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.lines import ASSIGNED, at_offset, scripts, told
from tunec.compiler.lints.launch.variables import is_read_by_programs
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_EXPORTS_ALL: Final = re.compile(r"^\s*set\s+(-a|-o\s+allexport)\b", re.MULTILINE)
_DECLARING: Final = ("export", "declare", "typeset", "local")


def _check(run: Run) -> Iterator[Finding]:
    for document in scripts(run):
        if _EXPORTS_ALL.search(document.text):
            continue
        for word, name in _held_back(document):
            is_used = re.search(rf"\$\{{?{name}\b", document.text) is not None
            if is_read_by_programs(name) and not is_used:
                yield _finding(document, word, name)


def _held_back(document: Document) -> Iterator[tuple[Word, str]]:
    """Variables that a command sets for the shell, and that none exports."""
    found = told(document)
    exported = {name for each in found for name in _exported(each)}
    for command in found:
        names = [_name(word) for word in command.words]
        for word, name in zip(command.words, names, strict=True):
            if None not in names and name is not None and name not in exported:
                yield word, name


def _exported(command: Command) -> Iterator[str]:
    if not command.words or command.words[0].written.text not in _DECLARING:
        return
    for word in command.words[1:]:
        yield _name(word) or word.written.text


def _name(word: Word) -> str | None:
    found = ASSIGNED.match(word.written.text)
    return None if found is None else found[1]


def _finding(document: Document, word: Word, name: str) -> Finding:
    return Finding(
        f"{name} is set for the shell only: no program that the script starts is told",
        (at_offset(document, word.written.at[0], len(name), "not exported"),),
        ("it holds for programs only where the caller's own environment already has the variable",),
        f"write export {name}=..., or put it on the line of the command",
    )


RULE = Rule(
    name="variable-not-exported",
    severity="warning",
    consequence="silent",
    consumers=("bash",),
    sources=(
        (
            "Bash reference manual 5.2, 3.7.4 Environment: a command is given the variables that "
            "are marked for export, and assignments before its name"
        ),
    ),
    check=_check,
)
