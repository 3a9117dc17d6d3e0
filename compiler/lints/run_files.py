"""The files of each run: which were named or found, read once, and put together."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path

from msgspec import Struct

from tunec.compiler.lints.alternatives import alternatives
from tunec.compiler.lints.documents import Reading, read_files
from tunec.compiler.lints.grouping import Group, Part, grouped, part_of
from tunec.compiler.lints.neighbours import is_python
from tunec.compiler.lints.parses import Parses
from tunec.compiler.lints.reach import Reach
from tunec.compiler.target import Target

Watch = Callable[[str, int], None]
"""Told of each file that is read, and of each run that is checked, with the number of all."""


def unwatched(_: str, __: int) -> None:
    """Nobody looks on."""


class Run(Struct, frozen=True):
    """What was read as one run, and the files that were named for it."""

    reading: Reading
    group: Group = ()


class Runs(Struct, frozen=True):
    """Everything that was read."""

    runs: tuple[Run, ...]
    crowded: tuple[Path, ...]


def read_runs(
    paths: Sequence[Path],
    targets: Mapping[str, Target],
    readers: Sequence[str],
    reach: Reach,
    found: Set[Path] = frozenset(),
    watch: Watch = unwatched,
) -> Runs:
    """Read files, with those that they refer to, run by run; raises nothing for any content.

    What nobody knows is of the runs that may speak of it; other such files, and all that were
    `found` below a folder, are of no run: they come last. A Python file that was only
    found is of the run of what starts it, or alone: it names what it reads, and another file
    beside it is as likely somebody else's.
    """
    memory = Parses()

    def read(paths: Iterable[Path]) -> Reading:
        return read_files([*paths], targets, readers, reach, memory)

    parts: dict[Part, Reading] = {}
    alone = [each for each in dict.fromkeys(paths) if each in found and is_python(each.name)]
    for each in dict.fromkeys(paths):
        watch("files", len(paths))
        if each in {*alone}:
            continue
        reading = read([each])
        parts[part_of(each, reading)] = reading
    groups = grouped([each for each in parts if each.is_read])
    strange = [each for each in parts if not each.is_read]
    named = {each: parts[each] for each in strange if each.path not in found}
    beside = [_beside(group, parts, named) for group in groups.runs]
    if len(beside) == 1:
        beside = [tuple(named)]
    runs = [
        Run(read(each.path for each in (*group, *others)), group)
        for group, others in zip(groups.runs, beside, strict=True)
    ]
    taken = {each for others in beside for each in others}
    left = [each.path for each in strange if each not in taken]
    runs += [Run(read([each])) for each in _not_started(alone, runs)]
    every = (*runs, *([Run(read(left))] if left else []))
    return Runs(tuple(one for each in every for one in apart(each)), groups.crowded)


def _beside(
    group: Group, parts: Mapping[Part, Reading], named: Mapping[Part, Reading]
) -> tuple[Part, ...]:
    """The files of nobody that a run may speak of: a model's config, and what its files name."""
    texts = [text for part in group for text in parts[part].sources.values()]
    return tuple(
        part
        for part, reading in named.items()
        if any("model_type" in each.keys for each in reading.unread)
        or any(part.path.name in text for text in texts)
    )


def _not_started(scripts: Sequence[Path], runs: Iterable[Run]) -> Iterator[Path]:
    """The Python files that no run has read for the sake of what starts them."""
    started = {Path(name).resolve() for each in runs for name in each.reading.sources}
    return (each for each in scripts if each.resolve() not in started)


def apart(run: Run) -> Iterator[Run]:
    """A run, or one for each of the alternatives that a file of it holds."""
    readings = tuple(alternatives(run.reading))
    group = run.group if len(readings) == 1 else ()
    return (Run(each, group) for each in readings)
