"""The files of one call as runs: all of them are one, unless some stand in each other's way.

Two files of one kind are never of one run: two files for DeepSpeed are two choices. Where that
happens, files are taken apart by directory. Where it happens within a directory, each of them is
read by itself, with what it refers to and with those of the directory that stand in nobody's way.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

from msgspec import Struct

from tunec.compiler.lints.document import TRAINERS, Document
from tunec.compiler.lints.documents import Reading, read_files
from tunec.compiler.target import Target

_BY_FLAGS: Final = ("shell", "env")
_MANY: Final = frozenset({"checkpoint", "hostfile"})
"""Kinds of which a run may have several."""
_OBJECTIVES: Final = {*TRAINERS, "axolotl", "simpletuner"} - {"hf"}
"""Kinds that say what is trained: a run has one. TrainingArguments may stand beside them."""

_ARGUMENTS: Final = frozenset({"hf", "objective"})
Kind = tuple[str, bool]
"""Whose keys a file holds, and whether it gives them as flags: flags beside a file are usual."""


class _Part(Struct, frozen=True, eq=False, dict=True):
    """A file that was named, with what it refers to."""

    path: Path
    own: frozenset[Kind]
    every: frozenset[Kind]
    """With the kinds of what it refers to."""
    files: frozenset[Path]
    """All that were read for it."""

    @cached_property
    def file(self) -> Path:
        """The file itself, however it was named."""
        return self.path.resolve()


def read_runs(
    paths: Sequence[Path], targets: Mapping[str, Target], readers: Sequence[str] = ()
) -> Iterator[Reading]:
    """Read files, with those that they refer to, run by run; raises nothing for any content."""
    whole = read_files(paths, targets, readers)
    if not _is_doubtful(whole.documents, frozenset(map(str, paths))):
        yield whole
        return
    parts = [_part(each, read_files([each], targets, readers)) for each in dict.fromkeys(paths)]
    for run in _apart(tuple(_heads(parts))):
        yield read_files([each.path for each in run], targets, readers)


def _is_doubtful(documents: Sequence[Document], named: frozenset[str]) -> bool:
    """Whether two of the files that were named are of one kind."""
    own = {(each.name, _kind(each)) for each in _counted(documents) if each.name in named}
    return len(own) > len({kind for _, kind in own})


def _counted(documents: Sequence[Document]) -> Iterator[Document]:
    return (each for each in documents if not each.is_view and each.kind not in _MANY)


def _kind(document: Document) -> Kind:
    kind = "objective" if document.kind in _OBJECTIVES else document.kind
    return kind, document.format in _BY_FLAGS


def _part(path: Path, reading: Reading) -> _Part:
    documents = tuple(_counted(reading.documents))
    return _Part(
        path,
        frozenset(_kind(each) for each in documents if each.name == str(path)),
        frozenset(map(_kind, documents)),
        frozenset({path.resolve(), *(Path(each).resolve() for each in reading.sources)}),
    )


def _heads(parts: Sequence[_Part]) -> Iterator[_Part]:
    """Those to which no other one refers; of two that refer to each other, the first."""
    readers: dict[Path, list[_Part]] = {}
    for part in parts:
        for file in part.files:
            readers.setdefault(file, []).append(part)
    dropped: set[Path] = set()
    for part in parts:
        others = (each for each in readers[part.file] if each is not part)
        if any(each.file not in part.files or each.file in dropped for each in others):
            dropped.add(part.file)
    return (each for each in parts if each.file not in dropped)


def _apart(parts: Sequence[_Part]) -> Iterator[Sequence[_Part]]:
    """The parts of each run, in the order in which they were named."""
    if not _clashing(parts):
        yield parts
        return
    folders: dict[Path, list[_Part]] = {}
    for part in parts:
        folders.setdefault(part.path.parent, []).append(part)
    for here in folders.values():
        clashing = _clashing(here)
        free = [each for each in here if each not in clashing]
        yield from _with_free(clashing, free) if clashing else (free,)


def _with_free(clashing: Sequence[_Part], free: Sequence[_Part]) -> Iterator[Sequence[_Part]]:
    """Each that clashes with those that do not.

    Where each script has arguments of its own, and none names a file of arguments, nobody knows
    for which of them that is: it stands alone.
    """
    for one in clashing:
        yield [one, *(each for each in free if not _doubles(one, each))]
    yield from ([each] for each in free if all(_doubles(one, each) for one in clashing))


def _doubles(one: _Part, other: _Part) -> bool:
    """Whether one gives by flags what the other gives by a file, or the other way round."""
    mine, theirs = (dict.fromkeys(part.own) for part in (one, other))
    return any((name, not by_flags) in theirs for name, by_flags in mine if name in _ARGUMENTS)


def _clashing(parts: Sequence[_Part]) -> list[_Part]:
    """Those that are of a kind that another one has, or refers to, or the other way round."""
    own = Counter(kind for each in parts for kind in each.own)
    every = Counter(kind for each in parts for kind in each.every)

    def clashes(part: _Part) -> bool:
        is_taken = any(every[kind] > 1 for kind in part.own)
        return is_taken or any(own[kind] > (kind in part.own) for kind in part.every)

    return [each for each in parts if clashes(each)]
