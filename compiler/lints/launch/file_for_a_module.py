"""The path of a file behind -m, which takes the name of a module."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.frontend.shell_words import Command, Word
from tunec.compiler.lints.launch.lines import at_offset, scripts, told
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_STARTS: Final = re.compile(r"(.*/)?(python[\d.]*|torchrun|accelerate)")
_FLAGS: Final = ("-m", "--module")


def _check(run: Run) -> Iterator[Finding]:
    for document in scripts(run):
        for command in told(document):
            word = _file(command)
            if word is None:
                continue
            text = word.written.text
            name = text.removeprefix("./").removesuffix(".py").replace("/", ".")
            yield Finding(
                f"-m is to start a module named {text}",
                (at_offset(document, word.written.at[0], len(text), "a file"),),
                (f"python looks for a module `py` within `{text.removesuffix('.py')}`",),
                f"write {text} without -m, or -m {name}",
            )


def _file(command: Command) -> Word | None:
    """The word behind the first -m, where it ends in .py."""
    texts = [each.written.text for each in command.words]
    start = next((at for at, text in enumerate(texts) if _STARTS.fullmatch(text)), None)
    if start is None:
        return None
    for at in range(start + 1, len(texts) - 1):
        if texts[at] in _FLAGS:
            return command.words[at + 1] if texts[at + 1].endswith(".py") else None
        if texts[at].endswith(".py"):
            return None  # what follows is the script's own
    return None


RULE = Rule(
    name="file-for-a-module",
    severity="error",
    consequence="parse",
    consumers=("torch", "accelerate"),
    sources=(
        "Python 3.11 documentation, Command line and environment: -m <module-name>",
        (
            "torch 2.13.0 distributed/run.py: -m, --module; accelerate 1.15.0 commands/launch.py: "
            "--module: python -m"
        ),
    ),
    check=_check,
)
