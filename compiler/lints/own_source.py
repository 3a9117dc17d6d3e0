"""What the Python files of a repository declare: fields and flags of its scripts, and words.

A repository that holds a program, or scripts on a program's parser, may have made more of it than
any release has: its own source then says what a key or a word means. Nothing is run or imported.
"""

import os
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Final

from msgspec import Struct

from tunec.compiler.frontend.disk import Unreadable, read_bytes
from tunec.compiler.lints.reach import Reach

_MOST_FILES: Final = 1_000
_MOST_FOLDERS: Final = 2_000
_LONGEST: Final = 400_000
"""Bytes of a file; what is longer is data."""
_NOT_ENTERED: Final = frozenset({"__pycache__", "node_modules", "site-packages"})
_FIELD: Final = re.compile(
    r"(?m)^[ \t]+([A-Za-z_]\w*)[ \t]*:[ \t]*([A-Za-z_][^=\n#]*?)[ \t]*(?:=|$)"
)
"""`name: type = default` in the body of a class."""
_FLAG: Final = re.compile(r"""["']--([A-Za-z][\w-]*)["']""")
_WORD: Final = re.compile(r"""["']([A-Za-z][\w.-]{2,40})["']""")
_EVERYWHERE: Final = frozenset({"none", "null", "auto", "true", "false", "default", "all", "full"})
"""Words that any script quotes for something else."""


class OwnSource(Struct, frozen=True, dict=True):
    """The Python files of a repository; they are read when somebody asks."""

    roots: tuple[Path, ...] = ()

    def declares(self, name: str, *, as_flag: bool = False) -> bool:
        """Whether a class has a field of that name, or, for flags, a parser has it."""
        return name in self._fields or (as_flag and name.replace("-", "_") in self._flags)

    def type_of(self, name: str) -> str:
        """The annotation of a field as it is written; empty where no class has it."""
        return self._fields.get(name, "")

    def quotes(self, word: str) -> bool:
        """Whether some file has the word as a text."""
        return word not in _EVERYWHERE and word in self._words

    def holds(self, text: str) -> bool:
        """Whether some file has a text."""
        return any(text in each for each in self._texts)

    def shows(self, pattern: re.Pattern[str]) -> bool:
        """Whether a pattern is found in some file."""
        return any(pattern.search(text) for text in self._texts)

    def lacks(self, text: str) -> bool:
        """Whether there are files, and none has a text."""
        return bool(self._texts) and not self.holds(text)

    @cached_property
    def _texts(self) -> tuple[str, ...]:
        return tuple(text for root in self.roots for text in _texts(root))

    @cached_property
    def _fields(self) -> dict[str, str]:
        return {each[1]: each[2] for text in self._texts for each in _FIELD.finditer(text)}

    @cached_property
    def _flags(self) -> frozenset[str]:
        found = (each[1] for text in self._texts for each in _FLAG.finditer(text))
        return frozenset(name.replace("-", "_") for name in found)

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(each[1] for text in self._texts for each in _WORD.finditer(text))


def own_source(files: Iterable[Path], reach: Reach) -> OwnSource:
    """The source of the projects that some files lie in."""
    roots = (reach.root_of(each) for each in files)
    return OwnSource(tuple(dict.fromkeys(root for root in roots if root is not None)))


def _texts(root: Path) -> Iterator[str]:
    for path in _files(root):
        try:
            content = read_bytes(path)
        except Unreadable:
            continue
        if len(content) <= _LONGEST:
            yield content.decode("utf-8", "replace")


def _files(root: Path) -> Iterator[Path]:
    count = 0
    for entered, (place, folders, names) in enumerate(os.walk(root)):
        if entered == _MOST_FOLDERS or count >= _MOST_FILES:
            return
        folders[:] = sorted(each for each in folders if _is_entered(each))
        for name in sorted(each for each in names if each.endswith(".py")):
            count += 1
            yield Path(place, name)


def _is_entered(name: str) -> bool:
    return not name.startswith(".") and name not in _NOT_ENTERED
