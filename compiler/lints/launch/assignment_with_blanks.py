"""A shell script sets a variable as other languages do, with blanks around the sign."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.frontend.shell_words import Command, Word
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.lines import at_offset, scripts, told
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_NAME: Final = re.compile(r"[A-Za-z_]\w*")


def _check(run: Run) -> Iterator[Finding]:
    for document in scripts(run):
        for command in told(document):
            rest = _rest_of_list(command)
            if rest is not None:
                yield _cut_list(document, *rest)
            word = _name(command)
            if word is None:
                continue
            text = word.written.text
            yield Finding(
                f"`{text}` is taken for a command: a blank stands before the =",
                (at_offset(document, word.written.at[0], len(text), "no assignment"),),
                ("the shell does not find it, and goes on with the variable as it was",),
                f"write {text}=... without blanks",
            )


def _rest_of_list(command: Command) -> tuple[Word, Word] | None:
    """`NAME=0,` and the number behind the blank, which the shell starts as a program."""
    words = command.words
    first = 1 if [each.written.text for each in words[:1]] == ["export"] else 0
    if len(words) < first + 2:
        return None
    head, tail = words[first], words[first + 1]
    is_cut = re.fullmatch(r"\w+=(\d+\s*,)*\d+,", head.written.text) is not None
    is_rest = re.fullmatch(r"\d[\d,]*", tail.written.text) is not None
    return (head, tail) if is_cut and is_rest else None


def _cut_list(document: Document, head: Word, tail: Word) -> Finding:
    text = head.written.text
    return Finding(
        f"`{text} {tail.written.text}` is cut at the blank: the list ends behind the comma",
        (at_offset(document, tail.written.at[0], len(tail.written.text), "taken for a command"),),
        (f"the shell looks for a program named {tail.written.text}, and starts nothing else",),
        f"write {text}{tail.written.text} without the blank",
        consequence="parse",
    )


def _name(command: Command) -> Word | None:
    """The name in `NAME = value`, also behind `export`."""
    words = [each.written.text for each in command.words[:3]]
    first = 1 if words[:1] == ["export"] else 0
    is_apart = len(words) > first + 1 and words[first + 1] == "="
    return command.words[first] if is_apart and _NAME.fullmatch(words[first]) else None


RULE = Rule(
    name="assignment-with-blanks",
    severity="error",
    consequence="silent",
    consumers=("bash",),
    sources=(
        (
            "Bash reference manual 5.2, 3.4 Shell Parameters: name=[value]; 3.7.2 Command Search "
            "and Execution: command not found"
        ),
    ),
    check=_check,
)
