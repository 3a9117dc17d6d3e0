"""Where training data is, judged by the form of its path, and what its records hold.

A name of a data set on the Hub may select a part of it: `openai/gsm8k:main:train` has a name, a
configuration and a split; `HuggingFaceH4/ultrachat_200k::train_sft` has no configuration.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Final, Literal

from msgspec import Struct

from tunec.schemas.caches import cached
from tunec.schemas.terms import DataFormat

DataKind = Literal["file", "directory", "url", "name"]
"""A local file, a local directory, an address of another file system, or a name on the Hub."""

BUILDERS: Final[Mapping[str, str]] = {
    ".json": "json",
    ".jsonl": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".txt": "text",
}
"""Suffixes of data files, each with the module of `datasets` that reads it: datasets 2.19.2 to
5.2.0 packaged_modules/__init__.py `_EXTENSION_TO_MODULE`, in part."""


def builder_of(path: str) -> str | None:
    """The module of `datasets` that reads a file with such a suffix; None: there is none."""
    return BUILDERS.get(PurePosixPath(path).suffix.lower())


class Record(Struct, frozen=True):
    """The columns of a record that a program uses; it ignores others."""

    columns: tuple[str, ...]
    kind: Literal["any", "chat", "dialogue", "turns", "text"] = "any"
    """The content of each column: lists of messages with `role` and `content`, such lists with the
    question in them, lists with `from` and `value`, or texts."""
    texts: tuple[str, ...] = ()
    """Further columns, which hold texts."""
    why: str = ""
    """What reads the columns so, where it is not the program itself."""
    renames: bool = True
    """Whether the program makes a user of a human, and an assistant of a gpt; otherwise the chat
    template meets the names that the data has."""


FORMATS: Final[Mapping[DataFormat, Record]] = {
    "messages": Record(("messages",), "chat"),
    "sharegpt": Record(("conversations",), "turns"),
    "alpaca": Record(("instruction", "output"), "text"),
    "prompt-completion": Record(("prompt", "completion")),
    "text": Record(("text",), "text"),
}
"""The columns of each format. Alpaca's `input` may be empty or missing."""


class Media(Struct, frozen=True):
    """Where a program looks for files that samples name by relative paths."""

    is_told: bool = False
    """Whether one of its keys names the data's folder; otherwise it is the folder where the run
    starts."""
    variable: str = ""
    """The environment variable that names the folder instead."""

    @property
    def beside_data(self) -> bool:
        """Whether paths are relative to the folder of the data."""
        return self.is_told or bool(self.variable)


@cached(256)
def data_kind(path: str) -> DataKind:
    """What a path of training data refers to, by its form alone; no disk is read.

    A file has the suffix of a data file. A directory begins with `.`, `/` or `~`, or ends with `/`.
    Anything else without `://` is a name on the Hub: `trl-lib/Capybara`.
    """
    if "://" in path:
        return "url"
    if PurePosixPath(path).suffix.lower() in BUILDERS:
        return "file"
    return "directory" if path.startswith((".", "/", "~")) or path.endswith("/") else "name"


_CHOSEN: Final = re.compile(r"([\w.-]+/[\w.-]+|[\w.-]{2,}):([^:/\[\]]*)(?::(.+))?")
"""A split may be a slice (`train[:10%]`), so everything after the second colon belongs to it."""


class Chosen(Struct, frozen=True):
    """The selected part of a data set on the Hub."""

    path: str
    config: str | None = None
    split: str | None = None

    def __str__(self) -> str:
        """The text that `chosen` parses."""
        if self.config is None and self.split is None:
            return self.path
        text = f"{self.path}:{self.config or ''}"
        return text if self.split is None else f"{text}:{self.split}"


@cached(256)
def chosen(path: str) -> Chosen:
    """Parse a path; files, directories and scripts have no selected part."""
    found = _CHOSEN.fullmatch(path) if data_kind(path) == "name" else None
    if found is None or found[1].endswith(".py"):
        return Chosen(path)
    return Chosen(found[1], found[2] or None, found[3] or None)


_FIRST: Final = re.compile(r"([^\[\]]*)\[:(\d+)\]")


def first_of(split: str | None) -> tuple[str | None, int]:
    """A split without its slice of so many first samples, and their number; 0: it has none.

    `train[:1000]` has 1000. datasets 3.6.0 to 5.2.0 arrow_reader.py `_rel_to_abs_instr` takes all
    where there are fewer.
    """
    found = _FIRST.fullmatch(split or "")
    return (found[1], int(found[2])) if found and int(found[2]) else (split, 0)


def with_first(split: str | None, most: int) -> str | None:
    """A split with the slice of so many first samples, which `first_of` parses."""
    return f"{split or 'train'}[:{most}]" if most else split


def data_name(path: str, config: str | None, split: str | None, usual: str = "train") -> str:
    """The name of what a reader loads, without a split that is the reader's default."""
    if data_kind(path) != "name":
        return path
    return str(Chosen(path, config or None, None if split == usual else split or None))


def usual_split(evaluation: str, trained: Iterable[str]) -> str:
    """The split to evaluate on if none is named: `test` of trained data, otherwise `train`."""
    said = chosen(evaluation)
    same = (chosen(each) for each in trained)
    is_shared = any((each.path, each.config) == (said.path, said.config) for each in same)
    return "test" if is_shared and data_kind(evaluation) != "file" else "train"


def is_chosen(path: str) -> bool:
    """Whether a path selects a configuration or a split of a data set."""
    return chosen(path).path != path


def is_local(path: str) -> bool:
    """Whether a path of training data is on this machine: a file or a directory."""
    return data_kind(path) in ("file", "directory")
