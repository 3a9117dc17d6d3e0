"""A command of several lines that the shell takes for several commands."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.frontend.shell_words import Command
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.lines import at_offset, scripts, told
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_PATTERN: Final = re.compile(r"(--?[\w-]+\s*\|\s*)+--?[\w-]+\s*\)")
"""A pattern of `case` with several flags: `--batch|-b)`."""


def _check(run: Run) -> Iterator[Finding]:
    for document in scripts(run):
        if _RETURN in document.text:
            yield _of_windows(document)
            continue
        before: Command | None = None
        for command in told(document):
            if (
                before is not None
                and before.words
                and before.end == "\n"
                and _is_rest(document, command)
            ):
                yield _finding(document, command)
            before = command if command.words or before is None else before


_RETURN: Final = "\\\r\n"
"""A line of Windows that is to go on: the backslash stands before the carriage return."""


def _of_windows(document: Document) -> Finding:
    return Finding(
        "the lines end as those of Windows do, and none of them goes on",
        (at_offset(document, document.text.find(_RETURN), 1, "continues nothing"),),
        (
            "the backslash takes the carriage return for a letter, and the command ends there",
            "the script is given a word that is a carriage return, and nothing of the lines below",
        ),
        "take the carriage returns out, as by: sed -i 's/\\r$//' FILE",
        consequence="parse",
    )


def _is_rest(document: Document, command: Command) -> bool:
    """Whether a command begins with a flag; `--help)` is a pattern of `case`."""
    if not command.words or command.end == ")":
        return False
    word = command.words[0].written
    is_flag = word.text.startswith("--") and word.text[2:3].isalpha()
    return is_flag and _PATTERN.match(document.text, word.at[0]) is None


def _finding(document: Document, command: Command) -> Finding:
    word = command.words[0].written
    return Finding(
        f"{word.text} begins a command of its own: the one above ends before it",
        (at_offset(document, word.at[0], len(word.text), "not passed on"),),
        (
            _why(document.text[: word.at[0]].rstrip(" \t")),
            "the run starts without the flags from here on; then the shell says: command not found",
        ),
        "end each line of the command in a backslash with nothing behind it, and put no comment "
        "between the lines",
    )


def _why(before: str) -> str:
    above = before.removesuffix("\n").rpartition("\n")[2]
    if above.lstrip().startswith("#"):
        return "a comment ends the command, also where the line above goes on"
    if above.rstrip().endswith("\\"):
        return "a backslash continues a line only if it is the last character of it"
    return "the line above does not end in a backslash"


RULE = Rule(
    name="command-cut-short",
    severity="error",
    consequence="silent",
    consumers=("bash",),
    sources=(
        (
            "Bash reference manual 5.2, 3.1.2.1 Escape Character: a backslash-newline pair is a "
            "line continuation; 3.1.3 Comments: from # to the end of that line"
        ),
        "hiyouga/LlamaFactory#3301: a blank behind the backslash of --hostfile",
        "shufangxun/LLaVA-MoD#16: arguments are not used by the HfArgumentParser: ['\\r']",
    ),
    check=_check,
)
