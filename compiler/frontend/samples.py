"""Counts the samples of training data that lies beside the spec."""

from pathlib import Path
from typing import Final, NamedTuple

from tunec.compiler.frontend.disk import Unreadable
from tunec.compiler.frontend.project import Project, require_inside
from tunec.schemas.caches import cached
from tunec.schemas.data_paths import data_kind
from tunec.schemas.training_data import Data, Part, parts

_MOST: Final = 2**28
"""Bytes up to which a file is counted; that takes a fraction of a second."""


def count_samples(data: Data, project: Project) -> int | None:
    """The samples of an epoch by the records of the files that `data.train` names.

    None unless each part is a JSONL file within the project: data may only exist where the run is.
    """
    found = [_samples(part, project) for part in parts(data.train)]
    counts = [count for count in found if count is not None]
    return sum(counts) if len(counts) == len(found) else None


def _samples(part: Part, project: Project) -> int | None:
    file = project.base / part.path
    if data_kind(part.name) != "file" or file.suffix.lower() != ".jsonl":
        return None
    try:
        full = require_inside(file, project.root)
        told = full.stat()
        if not full.is_file() or told.st_size > _MOST:
            return None
        count = _records(_State(full, told.st_size, told.st_mtime_ns))
    except (Unreadable, OSError, ValueError):
        return None
    return part.seen_of(count)


class _State(NamedTuple):
    """A file as it is now."""

    file: Path
    size: int
    changed: int


@cached(64)  # an editor's server loads the spec at each key stroke
def _records(state: _State) -> int:
    """The lines of a file that hold a record."""
    with state.file.open("rb") as opened:
        return sum(not line.isspace() for line in opened)
