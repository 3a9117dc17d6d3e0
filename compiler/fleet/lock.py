"""`tunec.lock`: what a tree was made from and what is in it, one line of JSON a pair.

The first line says which tunec wrote it; then, sorted by spec and cluster, each pair has the
digests of what went in, of what came out, and its decisions. Lines are written and read as a
stream, so that a fleet is never held in memory.

While a build runs, pairs that are being rewritten are not in the lock: what it says is true at
every moment. Finished ones are kept in `tunec.lock.part`, from which an interrupted build goes on.
"""

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from heapq import merge
from pathlib import Path
from typing import Any, Final, Self

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
        mine, theirs = asdict(self), asdict(other)
        return tuple(name for name in mine if mine[name] != theirs[name])


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
        data = {
            "spec": self.pair.spec,
            "cluster": self.pair.cluster,
            "inputs": asdict(self.inputs),
            "artifacts": dict(sorted(self.artifacts.items())),
            "summary": dict(self.summary),
            "decisions": dict(self.decisions),
        }
        return json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n"

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Read a line back. Raises ValueError, KeyError or TypeError for one that is torn."""
        data = json.loads(line)
        inputs = data["inputs"]
        return cls(
            Pair(data["spec"], data["cluster"]),
            Inputs(**{**inputs, "targets": tuple(inputs["targets"])}),
            data["artifacts"],
            data["summary"],
            data["decisions"],
        )


def read_lock(folder: Path) -> Iterator[Locked]:
    """The pairs of a tree's lock, sorted; one of another format holds nothing."""
    return _lines(folder / LOCK, is_torn=False)


def read_part(folder: Path) -> Iterator[Locked]:
    """The pairs that an interrupted build had finished, sorted; a torn last line is left out."""
    return _lines(folder / PART, is_torn=True)


def fold(folder: Path, version: str) -> None:
    """Put the pairs of the part into the lock."""
    write_lock(folder, version, _merged(read_lock(folder), read_part(folder)))


def _merged(old: Iterable[Locked], new: Iterable[Locked]) -> Iterator[Locked]:
    """Both, sorted; where both have a pair, the new one."""
    last: Pair | None = None
    for each in merge(new, old, key=lambda locked: locked.pair):
        if each.pair != last:
            yield each
        last = each.pair


def _lines(file: Path, *, is_torn: bool) -> Iterator[Locked]:
    try:
        stream = file.open(encoding="utf-8")
    except FileNotFoundError:
        return
    with stream:
        if _format(next(stream, "")) != FORMAT:
            return
        for line in stream:
            try:
                yield Locked.from_line(line)
            except (ValueError, KeyError, TypeError):
                if not is_torn:
                    raise
                return


def _format(line: str) -> int | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found.get("tunec.lock") if isinstance(found, dict) else None


def header(version: str) -> str:
    """The first line of a lock."""
    return json.dumps({"tunec.lock": FORMAT, "tunec": version}) + "\n"


def write_lock(folder: Path, version: str, pairs: Iterable[Locked]) -> None:
    """Replace the lock by these pairs, which come sorted; the old one stands until all is there."""
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{LOCK}.", dir=folder)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(header(version))
            file.writelines(each.to_line() for each in pairs)
        Path(name).chmod(0o644)
        Path(name).replace(folder / LOCK)
    finally:
        with suppress(FileNotFoundError):
            Path(name).unlink()


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
        for file in folder.rglob(f".*{STAGED}"):
            file.unlink(missing_ok=True)


@contextmanager
def part(folder: Path, version: str) -> Iterator[Callable[[Locked], None]]:
    """Open the part anew, and take it away at the end, when all of it is in the lock.

    Gives a function that adds a finished pair; each is on its way to the disk when that returns, so
    that it outlives the process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / PART
    with file.open("w", encoding="utf-8", newline="\n") as stream:
        stream.write(header(version))
        stream.flush()

        def add(pair: Locked) -> None:
            stream.write(pair.to_line())
            stream.flush()

        yield add
    file.unlink()
