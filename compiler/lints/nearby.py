"""Files that another file names: what is a name, and where such a file may lie."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tunec.compiler.frontend.files import Unreadable, read_bytes
from tunec.compiler.lints.document import Document

LONGEST: Final = 500
"""Characters of a file's name."""


def is_written(script: Document, name: str) -> bool:
    """Whether a script sends something to a file of that name before it starts the program."""
    return script.format == "shell" and f"> {name}" in script.text.replace("./", "")


def called_as(found: Path, by: Path) -> Path:
    """A file that another one names: from the working directory, as that one is called."""
    return found if by.is_absolute() else Path(os.path.relpath(found))


def is_file_name(text: str) -> bool:
    """Whether a text is the name of a config."""
    is_path = text.endswith((".json", ".yaml", ".yml")) and not set("{=") & set(text)
    return is_path and len(text) < LONGEST


def near(wanted: Path, path: Path) -> Iterator[Path]:
    """Beside the file that names it, in the directories around that, where the command runs."""
    yield from (folder / wanted for folder in path.resolve().parents)
    yield wanted


def contents(wanted: Path, path: Path) -> Iterator[tuple[Path, bytes]]:
    """The files of that name that can be read, nearest first."""
    for each in [wanted] if wanted.is_absolute() else near(wanted, path):
        try:
            yield each, read_bytes(each)
        except Unreadable:
            continue
