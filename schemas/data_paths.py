"""Where training data lies, told from how its path is written, and what its records hold."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final, Literal

from msgspec import Struct

from tunec.schemas.caches import cached

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


class Record(Struct, frozen=True):
    """Columns by which a program takes a record of training data, others aside."""

    columns: tuple[str, ...]
    kind: Literal["any", "chat", "text"] = "any"
    """What stands in each: lists of messages with `role` and `content`, or texts."""


@cached(256)
def data_kind(path: str) -> DataKind:
    """What a path of training data names, by its form alone; no disk is read.

    A file has the suffix of a data file. A directory begins with `.`, `/` or `~`, or ends with
    `/`. Whatever else has no `://` is a name on the Hub: `trl-lib/Capybara`.
    """
    if "://" in path:
        return "url"
    if PurePosixPath(path).suffix.lower() in BUILDERS:
        return "file"
    return "directory" if path.startswith((".", "/", "~")) or path.endswith("/") else "name"


def is_local(path: str) -> bool:
    """Whether a path of training data lies on this machine: a file or a directory."""
    return data_kind(path) in ("file", "directory")
