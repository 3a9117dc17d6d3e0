"""`tunec.lock`: what a tree was made from and what is in it, one line of JSON a pair.

The first line says which tunec wrote it; then, sorted by spec and cluster, each pair has the
digests of what went in, of what came out, and its decisions. Lines are written and read as a
stream, so that a fleet is never held in memory.

While a build runs, pairs that are being rewritten are not in the lock: what it says is true at
every moment. Finished ones are kept in `tunec.lock.part`, from which an interrupted build goes on.
"""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from heapq import merge
from pathlib import Path
from typing import Any, Final, Self

from tunec.compiler.ir.show import plain
from tunec.compiler.review.outcome import Pair

LOCK: Final = "tunec.lock"
PART: Final = "tunec.lock.part"
STAGED: Final = ".tunec-new"
"""Ending of a file that is not in its place yet."""
FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a pair was made from, each part by its digest or version."""

    spec: str
    """The spec with all that it extends."""
    cluster: str
    """The cluster and its devices."""
    model: str
    """The model's card or config."""
    overrides: str
    """What the fleet file says for this pair."""
    tunec: str
    targets: tuple[str, ...]
    """`huggingface@5.23.0`, with the versions of the packages beside it."""
    policies: str

    def changed(self, other: Self) -> tuple[str, ...]:
        """Names of the parts that differ."""
        mine, theirs = self.parts(), other.parts()
        return tuple(name for name in mine if mine[name] != theirs[name])

    def parts(self) -> dict[str, Any]:
        """Every part by its name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True, slots=True)
class Locked:
    """One pair of a lock."""

    pair: Pair
    inputs: Inputs
    artifacts: Mapping[str, str]
    """SHA-256 of each file by its path below the pair's directory; empty where nothing fits."""
    summary: Mapping[str, Any] = field(default_factory=dict)
    """The row of the summary table."""
    decisions: Mapping[str, Any] = field(default_factory=dict)
    """Every slot's value."""

    def to_line(self) -> str:
        """One line of JSON, keys in a fixed order."""
        return line_of(self, members(self.decisions))

    @classmethod
    def from_line(cls, line: str, *, whole: bool = True) -> Self:
        """Read a line back; its decisions, most of it, only where it is wanted `whole`.

        Raises ValueError, KeyError or TypeError for one that is torn.
        """
        data = json.loads(line if whole else f"{line[: line.index(_DECISIONS)]}}}")
        inputs = data["inputs"]
        return cls(
            Pair(data["spec"], data["cluster"]),
            Inputs(**{**inputs, "targets": tuple(inputs["targets"])}),
            data["artifacts"],
            data["summary"],
            data.get("decisions", {}),
        )


_UNREADABLE: Final = (ValueError, KeyError, TypeError)
"""What reading a line raises that is not one of ours."""

# A key stands in a text of JSON with its quotes as they are; in a value they have backslashes. No
# artifact is called like a key, since each is below its target's directory.
_INPUTS: Final = ',"inputs":'
_ARTIFACTS: Final = ',"artifacts":'
_SUMMARY: Final = ',"summary":'
_DECISIONS: Final = ',"decisions":'


def opening(pair: Pair, inputs: Inputs) -> str:
    """How the line of a pair that was made from these begins."""
    spec, cluster = _json(pair.spec), _json(pair.cluster)
    parts = _json(inputs.parts())
    return f'{{"spec":{spec},"cluster":{cluster}{_INPUTS}{parts}{_ARTIFACTS}'


def line_of(locked: Locked, decisions: str) -> str:
    """The line of a pair whose decisions are written already, as the `members` of an object."""
    return (
        f"{opening(locked.pair, locked.inputs)}{_json(dict(sorted(locked.artifacts.items())))}"
        f"{_SUMMARY}{_json(dict(locked.summary))}{_DECISIONS}{{{decisions}}}}}\n"
    )


def members(decisions: Mapping[str, Any]) -> str:
    """Slots and values as the members of an object of JSON."""
    return _json({slot: plain(value) for slot, value in decisions.items()})[1:-1]


_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Line:
    """A pair's line as it stands in a lock; what is in it is read when it is asked for."""

    pair: Pair
    text: str

    @classmethod
    def of(cls, text: str) -> Self:
        """A line by its text. Raises ValueError or KeyError for one that is torn."""
        if not text.endswith("}\n"):
            raise ValueError("the line has no end")
        data = json.loads(f"{text[: text.index(_INPUTS)]}}}")
        return cls(Pair(data["spec"], data["cluster"]), text)

    def artifacts(self) -> dict[str, str]:
        """SHA-256 of each file."""
        start = self.text.index(_ARTIFACTS) + len(_ARTIFACTS)
        found: dict[str, str] = json.loads(self.text[start : self.text.index(_SUMMARY, start)])
        return found


def read_lock(folder: Path, *, whole: bool = True) -> Iterator[Locked]:
    """The pairs of a tree's lock, sorted; one of another format holds nothing."""
    for line in lock_lines(folder):
        try:
            yield Locked.from_line(line.text, whole=whole)
        except _UNREADABLE:
            continue


def lock_lines(folder: Path) -> Iterator[Line]:
    """The lines of a tree's lock, as they stand there.

    A line that was cut off, edited into something else or moved holds no pair: it is built again.
    """
    return _lines(folder / LOCK)


def _part_lines(folder: Path) -> Iterator[Line]:
    """The pairs that a build has finished, sorted; a torn last line is left out."""
    return _lines(folder / PART)


def fold(folder: Path, version: str) -> None:
    """Put the pairs of the part into the lock."""
    write_lock(folder, version, _merged(lock_lines(folder), _part_lines(folder)))


def _merged(old: Iterable[Line], new: Iterable[Line]) -> Iterator[Line]:
    """Both, sorted; where both have a pair, the new one."""
    last: Pair | None = None
    for each in merge(new, old, key=lambda line: line.pair):
        if each.pair != last:
            yield each
        last = each.pair


def _lines(file: Path) -> Iterator[Line]:
    try:
        stream = file.open(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    last: Pair | None = None
    with stream:
        if _format(next(stream, "")) != FORMAT:
            return
        for text in stream:
            try:
                line = Line.of(text)
                follows = last is None or last < line.pair
            except _UNREADABLE:
                continue
            if follows:
                yield line
                last = line.pair


def _format(line: str) -> int | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found.get("tunec.lock") if isinstance(found, dict) else None


def header(version: str) -> str:
    """The first line of a lock."""
    return json.dumps({"tunec.lock": FORMAT, "tunec": version}) + "\n"


def write_lock(folder: Path, version: str, lines: Iterable[Line]) -> None:
    """Replace the lock by these lines, which come sorted; the old one stands until all is there."""
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{LOCK}.", dir=folder)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(header(version))
            file.writelines(each.text for each in lines)
        Path(name).chmod(0o644)
        _sign(Path(name), time.time_ns())
        Path(name).replace(folder / LOCK)
    finally:
        with suppress(FileNotFoundError):
            Path(name).unlink()


_MARK, _STEP = 714_285, 1_000_000
"""What the time of a lock that we wrote leaves over when it is divided by a millisecond."""


def _sign(file: Path, now: int) -> None:
    """Give a lock the last marked time before `now`, in nanoseconds."""
    then = (now // _STEP - 1) * _STEP + _MARK
    os.utime(file, ns=(then, then))


def untouched_since(folder: Path) -> int:
    """Nanoseconds: what is older has not been touched since the lock was written.

    0 where the lock was not put there by `write_lock`: a lock that was checked out, copied or
    edited says nothing about the files around it, whatever their time.
    """
    try:
        written = (folder / LOCK).stat().st_mtime_ns
    except FileNotFoundError:
        return 0
    return written if written % _STEP == _MARK else 0


def vouch(folder: Path, now: int) -> None:
    """Say that every file was found to be what the lock says, at `now` in nanoseconds."""
    if (folder / LOCK).exists() and not untouched_since(folder):
        _sign(folder / LOCK, now)


class Busy(RuntimeError):
    """Another build is at work on the tree."""


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Keep other builds out of a tree; the system lets go when the last process of this one ends.

    Raises Busy. Where the system has no such locks (Windows), nothing is kept out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise Busy(f"another build is at work on {folder}") from None
    finally:
        os.close(handle)


def sweep(folder: Path) -> None:
    """Remove what a killed build was writing beside its place."""
    for file in folder.glob(f".{LOCK}.*"):
        file.unlink(missing_ok=True)
    if (folder / PART).exists():
        for staged in list(folder.rglob(f".*{STAGED}")):
            if staged.is_dir() and not staged.is_symlink():
                shutil.rmtree(staged)
            else:
                staged.unlink(missing_ok=True)


@contextmanager
def part(folder: Path, version: str) -> Iterator[Callable[[str], None]]:
    """Open the part anew, and take it away at the end, when all of it is in the lock.

    Gives a function that adds the line of a finished pair; each is on its way to the disk when that
    returns, so that it outlives the process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / PART
    with file.open("w", encoding="utf-8", newline="\n") as stream:
        stream.write(header(version))
        stream.flush()

        def add(line: str) -> None:
            stream.write(line)
            stream.flush()

        yield add
    file.unlink()
