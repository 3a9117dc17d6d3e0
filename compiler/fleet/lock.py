"""`tunec.lock`: the inputs and files of a tree, one line of JSON per pair.

The first line names the version of tunec. Then each pair, sorted by spec and cluster, has the
digests of its inputs and files, and its decisions. Lines are written and read as a stream, so that
a fleet is never held in memory.

While a build runs, pairs that are being rewritten are not in the lock, so it is true at every
moment. Finished pairs are kept in `tunec.lock.part` (`tunec.lock.part2` and so on, for each process
that builds), from which the build continues after an interruption.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from heapq import merge
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, cast

from msgspec import Struct, field

from tunec.compiler.ir.values import plain
from tunec.compiler.review.outcome import Pair
from tunec.compiler.writing import alone_in, replacing, settle, sweep

LOCK: Final = "tunec.lock"
PART: Final = "tunec.lock.part"
FORMAT: Final = 1


class Inputs(Struct, frozen=True):
    """The inputs of a pair, each by its digest or version."""

    spec: str
    """The spec with everything that it extends."""
    cluster: str
    """The cluster and its devices."""
    model: str
    """The model's card or config."""
    overrides: str
    """The fleet file's overrides for this pair."""
    tunec: str
    targets: tuple[str, ...]
    """`huggingface@5.23.0`, with the versions of the packages beside it."""
    policies: str

    def changed(self, other: Self) -> tuple[str, ...]:
        """Names of the inputs that differ."""
        mine, theirs = self.parts(), other.parts()
        return tuple(name for name in mine if mine[name] != theirs[name])

    def on(self, cluster: str) -> Self:
        """These inputs on another cluster, given by its digest."""
        return type(self)(**{**self.parts(), "cluster": cluster})

    def parts(self) -> dict[str, Any]:
        """Every input by its name, in writing order."""
        return {name: getattr(self, name) for name in _PARTS}


_PARTS: Final = Inputs.__struct_fields__


class LockedPair(Struct, frozen=True):
    """One pair of a lock."""

    pair: Pair
    inputs: Inputs
    artifacts: Mapping[str, str]
    """SHA-256 of each file by its path below the pair's directory; empty if nothing fits."""
    summary: Mapping[str, Any] = field(default_factory=dict)
    """The pair's row of the summary table."""
    decisions: Mapping[str, Any] = field(default_factory=dict)
    """Every slot's value."""

    @classmethod
    def from_line(cls, line: str, *, whole: bool = True) -> Self:
        """Read a line back; its decisions, the largest part, only if `whole`.

        Raises ValueError, KeyError or TypeError for a truncated line.
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


UNREADABLE: Final = (ValueError, KeyError, TypeError, RecursionError)
"""Exceptions from reading a line that tunec did not write."""

# A key stands in a text of JSON with its quotes as they are; in a value they have backslashes. No
# artifact is called like a key, since each is below its target's directory.
_INPUTS: Final = ',"inputs":'
_ARTIFACTS: Final = ',"artifacts":'
_SUMMARY: Final = ',"summary":'
_DECISIONS: Final = ',"decisions":'


def opening(pair: Pair, inputs: Inputs) -> str:
    """The start of the line of a pair with these inputs."""
    spec, cluster = as_json(pair.spec), as_json(pair.cluster)
    parts = as_json(inputs.parts())
    return f'{{"spec":{spec},"cluster":{cluster}{_INPUTS}{parts}{_ARTIFACTS}'


def line_of(locked: LockedPair, decisions: str) -> str:
    """The line of a pair whose decisions are already written as the `members` of an object."""
    return (
        f"{opening(locked.pair, locked.inputs)}{as_json(dict(sorted(locked.artifacts.items())))}"
        f"{_SUMMARY}{as_json(dict(locked.summary))}{_DECISIONS}{{{decisions}}}}}\n"
    )


def members(decisions: Mapping[str, Any]) -> str:
    """Slots and values as the members of a JSON object."""
    return as_json({slot: plain(value) for slot, value in decisions.items()})[1:-1]


_NAMES: Final = re.compile(rf'\{{"spec":"([^"\\]*)","cluster":"([^"\\]*)"{_INPUTS}')
"""The start of a line, if no name has a character that JSON escapes."""

as_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Encodes all parts of a line."""


class Line(NamedTuple):
    """A pair's line in a lock, parsed on demand."""

    pair: Pair
    text: str

    @classmethod
    def of(cls, text: str) -> Self:
        """A line from its text. Raises ValueError or KeyError for a truncated one."""
        if not text.endswith("}\n"):
            raise ValueError("the line has no end")
        names = _NAMES.match(text)
        if names is not None:
            return cls(Pair(*names.groups()), text)
        data = json.loads(f"{text[: text.index(_INPUTS)]}}}")
        return cls(Pair(data["spec"], data["cluster"]), text)

    def artifacts(self) -> str:
        """SHA-256 of each file by its path, as JSON; empty for a truncated line."""
        try:
            return self._between(_ARTIFACTS, _SUMMARY)
        except ValueError:
            return ""

    def files(self) -> Set[str]:
        """Paths of the files that the line lists; none for a truncated line."""
        try:
            return cast("dict[str, str]", json.loads(self.artifacts())).keys()
        except UNREADABLE:
            return frozenset()

    def summary(self) -> dict[str, Any]:
        """The row of the summary table."""
        found: dict[str, Any] = json.loads(self._between(_SUMMARY, _DECISIONS))
        return found

    def _between(self, key: str, following: str) -> str:
        start = self.text.index(key) + len(key)
        return self.text[start : self.text.index(following, start)]


def read_lock(folder: Path, *, whole: bool = True) -> Iterator[LockedPair]:
    """The pairs of a tree's lock, sorted; empty for a lock of another format."""
    for line in lock_lines(folder):
        try:
            yield LockedPair.from_line(line.text, whole=whole)
        except UNREADABLE:
            continue


def lock_lines(folder: Path) -> Iterator[Line]:
    """The lines of a tree's lock, unchanged.

    A line that was truncated, edited or moved holds no pair, so that pair is built again.
    """
    return _lines(folder / LOCK)


def is_own(name: str) -> bool:
    """Whether a file at the top of a tree is the lock or a part of it."""
    number = name.removeprefix(PART)
    return name in (LOCK, PART) or (number != name and number.isdecimal())


def _parts(folder: Path) -> list[Path]:
    """The parts of a tree's lock; the last one is `PART`, which exists if any others do."""
    found = (each for each in folder.glob(f"{PART}*") if is_own(each.name))
    return sorted(found, reverse=True)


def fold(folder: Path, version: str, *, alone: bool = False, vouching: bool = True) -> None:
    """Merge the pairs of the parts into the lock; a truncated last line of a part is left out.

    `alone`: the directories of pairs hold nothing but their files. If the lock is not `vouching`
    for the files around it, the next build reads all of them.
    """
    lines = _merged(*map(_lines, _parts(folder)), lock_lines(folder))
    if vouching and hasattr(os, "sync"):
        os.sync()
    write_lock(folder, version, lines, alone=alone, vouching=vouching)


def fold_parts(folder: Path, version: str) -> None:
    """Merge what an interrupted build had finished into the lock.

    If the machine crashed, the written files may not have reached the disk.
    """
    if (folder / PART).exists():
        fold(folder, version, vouching=False)
        _remove_parts(folder)


def _remove_parts(folder: Path) -> None:
    for each in _parts(folder):
        each.unlink()


def _merged(*sorted_lines: Iterable[Line]) -> Iterator[Line]:
    """All lines, sorted; if several have one pair, the first one's line."""
    last: Pair | None = None
    for each in merge(*sorted_lines, key=lambda line: line.pair):
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
            except UNREADABLE:
                continue
            if follows:
                yield line
                last = line.pair


def _format(line: str) -> int | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found.get("tunec.lock") if isinstance(found, dict) else None


def header(version: str) -> str:
    """The first line of a lock."""
    return json.dumps({"tunec.lock": FORMAT, "tunec": version}) + "\n"


def write_lock(
    folder: Path, version: str, lines: Iterable[Line], *, alone: bool = False, vouching: bool = True
) -> None:
    """Replace the lock by these sorted lines; the old one stays until the new one is complete."""
    folder.mkdir(parents=True, exist_ok=True)

    def ready(file: Path) -> None:
        if vouching:
            _sign(file, time.time_ns(), alone=alone)

    with replacing(folder / LOCK, ready) as file:
        file.write(header(version))
        file.writelines(each.text for each in lines)


_STEP: Final = 1_000_000
_MARK, _ALONE = 714_285, 714_286
"""The remainder, in nanoseconds within a millisecond, of the modification time of a lock that tunec
wrote: the second one if the directories of pairs held nothing but their files."""


class TreeState(NamedTuple):
    """What a lock's modification time says about the tree."""

    since: int
    """Nanoseconds: a file older than this has not changed since the lock was written. 0 if
    `write_lock` did not write the lock: a lock that was checked out, copied or edited says nothing
    about the files around it, whatever their time."""
    are_alone: bool
    """Whether the directories of pairs held nothing else at that time."""


def _sign(file: Path, now: int, *, alone: bool) -> None:
    """Set a lock's modification time to the last marked time before `now`, in nanoseconds."""
    then = (now // _STEP - 1) * _STEP + (_ALONE if alone else _MARK)
    os.utime(file, ns=(then, then))


def tree_state(folder: Path) -> TreeState:
    """What is known about a tree without reading it."""
    try:
        written = (folder / LOCK).stat().st_mtime_ns
    except FileNotFoundError:
        return TreeState(0, are_alone=False)
    mark = written % _STEP
    return TreeState(written if mark in (_MARK, _ALONE) else 0, mark == _ALONE)


def vouch(folder: Path, now: int, *, alone: bool) -> None:
    """Record that every file matched the lock at `now`, in nanoseconds."""
    said = tree_state(folder)
    if (folder / LOCK).exists() and (not said.since or alone > said.are_alone):
        _sign(folder / LOCK, now, alone=alone)


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Keep other builds out of a tree. Raises Busy."""
    folder.mkdir(parents=True, exist_ok=True)
    with alone_in(folder, waiting=False):
        yield


def tidy(folder: Path) -> None:
    """Finish the moves of a killed build, and remove its temporary files."""
    sweep(folder, LOCK)
    if (folder / PART).exists():
        settle(folder)


@contextmanager
def part(folder: Path, version: str) -> Iterator[None]:
    """Begin a part; at the end remove all parts, whose content is in the lock by then."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PART).write_text(header(version), "utf-8", newline="\n")
    yield
    _remove_parts(folder)


@contextmanager
def adding(folder: Path, version: str, number: int = 0) -> Iterator[Callable[[str], None]]:
    """Open the part of the process with a `number`.

    Yields a function that adds the line of a finished pair. The line is handed to the system before
    the function returns, so it survives the process.
    """
    file = folder / (f"{PART}{number + 1}" if number else PART)
    with file.open("a", encoding="utf-8", newline="\n") as stream:
        if number:
            stream.write(header(version))

        def add(line: str) -> None:
            stream.write(line)
            stream.flush()

        yield add
