"""A shell script sets a variable as other languages do, with blanks around the sign."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.frontend.shell_words import Command, Word
from tunec.compiler.lints.launch.lines import at_offset, scripts, told
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_NAME: Final = re.compile(r"[A-Za-z_]\w*")


def _check(run: Run) -> Iterator[Finding]:
    for document in scripts(run):
        for command in told(document):
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
