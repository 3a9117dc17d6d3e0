"""The formats of files that can be read, and the search for them in a folder."""

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from tunec.compiler.calibrate.formats import driver_table, lines, records, snapshot
from tunec.compiler.calibrate.observation import Observation
from tunec.compiler.diagnostics.wording import shortened

_LONG: Final = 200
MOST_BYTES: Final = 1 << 29
"""The size limit of a file."""


class Form(Struct, frozen=True):
    """A format of files."""

    name: str
    patterns: tuple[str, ...]
    """Patterns of file names in a folder that are read in this format."""
    read: Callable[[bytes], Sequence[Observation]]


def _text(read: Callable[[str], Sequence[Observation]]) -> Callable[[bytes], Sequence[Observation]]:
    return lambda content: read(content.decode("utf-8", errors="replace"))


FORMS: Final = (
    Form("a memory snapshot", ("*.pickle", "*.pkl"), snapshot.read),
    Form("JSON lines", ("*.jsonl",), _text(records.read_lines)),
    Form("JSON", ("trainer_state.json", "*memory_stats*.json"), _text(records.read)),
    Form("nvidia-smi's table", ("*smi*.csv",), _text(driver_table.read)),
    Form("a log", ("*.log", "*.out", "*.err", "*log*.txt"), _text(lines.read)),
)
"""In the order in which they are tried."""
_PICKLE: Final = b"\x80"


class Unread(ValueError):
    """A file without observations of a run; the message says why."""


def read_file(path: Path) -> list[Observation]:
    """The observations in a file, whatever its name. Raises Unread."""
    content = _content(path)
    try:
        for form in FORMS:
            is_pickle = form is FORMS[0]
            if is_pickle == content.startswith(_PICKLE) and (found := list(form.read(content))):
                return found
    except (ValueError, ArithmeticError, csv.Error) as fault:
        raise Unread(shortened(str(fault), _LONG)) from None
    if path.name == "trainer_state.json":
        raise Unread(
            "it has no time of the run, as those of checkpoints, which come before its end; the "
            "log has it, or the one that `save_state` wrote at the end"
        )
    forms = ", ".join(("trainer_state.json", "trainer_log.jsonl", *(f.name for f in FORMS)))
    raise Unread(f"nothing in it shows time or memory of a run; what is read: {forms}")


def _content(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise Unread("there is no such file")
        if path.stat().st_size > MOST_BYTES:
            raise Unread(f"it has more than {MOST_BYTES:,} bytes")
        return path.read_bytes()
    except OSError as fault:
        raise Unread((fault.strerror or "it cannot be read").lower()) from None


def files_in(folder: Path) -> Iterator[Path]:
    """The files of a folder, and of its `watch` folder, whose names match a format."""
    found = {
        each
        for form in FORMS
        for pattern in form.patterns
        for inside in (folder, folder / "watch")
        for each in inside.glob(pattern)
    }
    yield from sorted(found)
