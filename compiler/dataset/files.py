"""Records of JSONL, JSON, CSV and Parquet files, each with its place."""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tunec.compiler.diagnostics.wording import shortened


class RecordAt(NamedTuple):
    """One record, or why it cannot be read."""

    at: int
    """The record's line; in a Parquet file or a JSON list, its number from 1."""
    record: Mapping[str, Any] | None
    fault: str = ""
    column: int = 1


class Unread(Exception):
    """A file cannot be read at all; the message says why."""

    def __init__(self, why: str, help: str | None = None, line: int = 1, column: int = 1) -> None:
        super().__init__(why)
        self.help = help
        self.line = line
        self.column = column


EXTRA: Final = "pip install 'tunec[data]'"
"""The command that installs the packages for reading data."""

Reader = Callable[[Path], Iterator[RecordAt]]


def records(path: Path) -> Iterator[RecordAt]:
    """Every record of a file in order. Raises Unread."""
    if path.is_dir():
        raise Unread("it is a directory", "name the files in it")
    if path.exists() and not path.is_file():
        raise Unread("it is not a regular file")
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        known = ", ".join(READERS)
        raise Unread(f"`{path.name}` has no suffix of a data file", f"tunec reads {known}")
    try:
        yield from reader(path)
    except UnicodeDecodeError as fault:
        raise Unread(f"it is not UTF-8 text: {fault.reason}") from None
    except FileNotFoundError:
        raise Unread("there is no such file") from None
    except OSError as fault:
        raise Unread((fault.strerror or str(fault)).lower()) from None


def unit(path: Path) -> str:
    """The unit in which places of a file are counted."""
    return "line" if path.suffix.lower() in (".jsonl", ".csv") else "record"


def _jsonl(path: Path) -> Iterator[RecordAt]:
    with path.open(encoding="utf-8-sig", newline="\n") as lines:
        for at, line in enumerate(lines, 1):
            if line.strip():
                yield _line(at, line)


def _line(at: int, line: str) -> RecordAt:
    try:
        return _mapping(at, json.loads(line), line)
    except json.JSONDecodeError as fault:
        return RecordAt(at, None, f"JSON: {fault.msg.lower()}", fault.colno)
    except RecursionError:
        return RecordAt(at, None, "it is nested too deep")
    except ValueError as fault:
        return RecordAt(at, None, f"JSON: {fault}")


def _mapping(at: int, found: Any, text: str) -> RecordAt:
    """A record from a text; JSON allows half surrogate pairs, which UTF-8 cannot encode."""
    if _HALF in text.lower() and _is_halved(found):
        return RecordAt(at, None, "it holds half of a surrogate pair, which is no character")
    if isinstance(found, dict):
        return RecordAt(at, found)
    return RecordAt(at, None, f"expected an object, and found `{shortened(json.dumps(found), 40)}`")


_HALF: Final = "\\ud"


def _is_halved(found: Any) -> bool:
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _json(path: Path) -> Iterator[RecordAt]:
    """The objects of a list, or of an object's only list."""
    text = path.read_text("utf-8-sig")
    try:
        found = json.loads(text)
    except json.JSONDecodeError as fault:
        if fault.msg == "Extra data" and fault.lineno > 1:
            yield from _jsonl(path)
            return
        raise Unread(f"JSON: {fault.msg.lower()}", line=fault.lineno, column=fault.colno) from None
    except RecursionError:
        raise Unread("it is nested too deep") from None
    except ValueError as fault:
        raise Unread(f"JSON: {fault}") from None
    if isinstance(found, dict):
        lists = [each for each in found.values() if isinstance(each, list)]
        found = lists[0] if len(lists) == 1 else found
    if not isinstance(found, list):
        raise Unread("it holds no list of records", "write a list of objects, or one a line")
    marks = _HALF if _HALF in text.lower() else ""
    yield from (_mapping(at, each, marks) for at, each in enumerate(found, 1))


def _csv(path: Path) -> Iterator[RecordAt]:
    usual = csv.field_size_limit(2**31 - 1)  # of the whole process, so that it is given back
    with path.open(encoding="utf-8-sig", newline="") as lines:
        rows = csv.DictReader(lines, strict=True)
        try:
            yield from (_row(rows.line_num, each) for each in rows)
        except csv.Error as fault:
            raise Unread(f"CSV: {fault}", line=rows.line_num) from None
        finally:
            csv.field_size_limit(usual)


def _row(at: int, found: dict[str | Any, str | Any]) -> RecordAt:
    if None in found:
        return RecordAt(at, None, "it has more fields than the first line names")
    missing = [name for name, value in found.items() if value is None]
    if missing:
        return RecordAt(at, None, f"it ends before the column `{missing[0]}`")
    return RecordAt(at, found)


def _parquet(path: Path) -> Iterator[RecordAt]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise Unread("Parquet files are read by pyarrow, which is not installed", EXTRA) from None
    at = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(1000):
                for record in batch.to_pylist():
                    at += 1
                    yield RecordAt(at, record)
    except Exception as fault:  # noqa: BLE001  a damaged file fails in any way there is
        raise Unread(f"Parquet: {shortened(str(fault), 200) or type(fault).__name__}") from None


READERS: Final[Mapping[str, Reader]] = {
    ".jsonl": _jsonl,
    ".json": _json,
    ".csv": _csv,
    ".parquet": _parquet,
}
"""By file suffix."""
