"""The files of each run: named or found, read once, and put together."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct

from tunec.compiler.frontend.disk import Unreadable, read_bytes
from tunec.compiler.frontend.shell_words import BATCH_ENDINGS
from tunec.compiler.lints.document import TRL, Document, FileReference
from tunec.compiler.lints.documents import Reading, read_files
from tunec.compiler.lints.grouping import Group, Part, grouped, part_of
from tunec.compiler.lints.mentions import without_remarks
from tunec.compiler.lints.neighbours import is_python
from tunec.compiler.lints.parses import Parses
from tunec.compiler.lints.repository import Reach, is_library
from tunec.compiler.target import Target
from tunec.schemas.frozen import replace

Watch = Callable[[str, int], None]
"""Called for each file that is read and each run that is checked, with the total number."""


def unwatched(_: str, __: int) -> None:
    """Ignore the progress."""


class Run(Struct, frozen=True):
    """The documents that were read as one run, and the files that were named for it."""

    reading: Reading
    group: Group = ()
    alone: tuple[Reading, ...] = ()
    """The reading of each file by itself, if the files were found and only a guess puts them
    together."""


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

    A file of no known kind joins the runs that may refer to it; other such files, and all that were
    `found` below a folder, belong to no run and come last. A Python file that was only found
    belongs to the run that starts it, or forms its own run: it names the files that it reads, and a
    file beside it may well be unrelated.
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
    is_told = _says_how_it_starts(parts.values())
    runs = [
        Run(
            read(each.path for each in (*group, *others)),
            group,
            _guessed(group, parts, found, groups.runs, is_told=is_told),
        )
        for group, others in zip(groups.runs, beside, strict=True)
    ]
    taken = {each for others in beside for each in others}
    left = [each.path for each in strange if each not in taken]
    runs += [Run(read([each])) for each in _not_started(alone, runs)]
    every = (*runs, *([Run(read(left))] if left else []))
    return Runs(tuple(one for each in every for one in apart(each)), groups.crowded)


def _says_how_it_starts(readings: Iterable[Reading]) -> bool:
    """Whether a script among the files starts something: the files it names are then one run."""
    return any(each.kind == "launch" for reading in readings for each in reading.documents)


def _guessed(
    group: Group,
    parts: Mapping[Part, Reading],
    found: Set[Path],
    every: Sequence[Group],
    *,
    is_told: bool,
) -> tuple[Reading, ...]:
    """The readings of files that are combined by a guess; empty if the guess is probably right.

    Two files alone in one folder are most likely meant for each other, unless a script contradicts.
    """
    if len(group) < 2 or not {each.path for each in group} <= found:
        return ()
    is_only = not any(part in other for part in group for other in every if other is not group)
    if is_only and not is_told and len({part.path.parent for part in group}) == 1:
        return ()
    if all(_is_named(each, group, parts) or not _is_serving(each) for each in group):
        return ()
    return tuple(parts[each] for each in group)


def _is_serving(part: Part) -> bool:
    return {kind for kind, _ in part.own} <= {"deepspeed", "accelerate"}


def _is_named(part: Part, group: Group, parts: Mapping[Part, Reading]) -> bool:
    """Whether another file of the group mentions a part's file name, with any path."""
    others = (each for other in group if other is not part for each in parts[other].sources.items())
    return any(part.path.name in without_remarks(*each) for each in others)


def _beside(
    group: Group, parts: Mapping[Part, Reading], named: Mapping[Part, Reading]
) -> tuple[Part, ...]:
    """Files of no known kind that a run may refer to: model configs, and files it names."""
    texts = [text for part in group for text in parts[part].sources.values()]
    return tuple(
        part
        for part, reading in named.items()
        if any("model_type" in each.keys for each in reading.unread)
        or any(part.path.name in text for text in texts)
    )


def _not_started(scripts: Sequence[Path], runs: Iterable[Run]) -> Iterator[Path]:
    """The Python files that no run has read because it starts them."""
    started = {Path(name).resolve() for each in runs for name in each.reading.sources}
    return (each for each in scripts if each.resolve() not in started)


def apart(run: Run) -> Iterator[Run]:
    """The run itself, or one run for each alternative in one of its files."""
    return (Run(each, run.group, run.alone) for each in alternatives(run.reading))


_SUFFIXES: Final = frozenset(
    {".json", ".yaml", ".yml", ".toml", ".env", ".sh", *BATCH_ENDINGS, ".hostfile"}
)
_NAMES: Final = frozenset({"hostfile"})
_NO_CONFIGS: Final = frozenset({"tunec.toml", "pyproject.toml"})
"""Files that are only read for settings and requirements."""
_NOT_ENTERED: Final = frozenset({"__pycache__", "node_modules", "site-packages"})


_MOST_FILES: Final = 1_000
_MOST_FOLDERS: Final = 10_000
"""The end of a walk: a larger folder is not one project, but a disk with many."""


class GatheredFiles(Struct, frozen=True):
    """Files that were named, or found below named folders."""

    files: Mapping[Path, bool]
    """In order; True if the file was found and not named."""
    cut_short: tuple[Path, ...] = ()
    """Folders that contain more than was read."""


LeavesOut = Callable[[Path], bool]
"""Whether a file or folder below a named folder is left out."""


def _nothing(_: Path) -> bool:
    return False


def files_of(paths: Iterable[Path], leaves_out: LeavesOut = _nothing) -> GatheredFiles:
    """Each file once, with folders replaced by the files below them that are not left out.

    Hidden folders, links to folders, other file systems and package folders are not entered, and at
    most 1,000 files in 10,000 folders are taken from a named folder. Python files of a library's
    package are the library, and configure nothing. A folder that cannot be read, or holds no files,
    is returned as it is, so that reading it reports the fault.
    """
    every: dict[Path, bool] = {}
    cut: list[Path] = []
    for path in paths:
        found = list(islice(_below(path, leaves_out), _MOST_FILES + 1)) if path.is_dir() else []
        files = [each for each in found if each is not None][:_MOST_FILES]
        if len(files) < len(found):
            cut.append(path)
        for each in files or (path,):
            every.setdefault(each, bool(files))
    return GatheredFiles(every, tuple(cut))


def _below(folder: Path, leaves_out: LeavesOut) -> Iterator[Path | None]:
    """The files below a folder, followed by None if there are too many folders to enter."""
    device = folder.stat().st_dev
    libraries = set[Path]()
    for entered, (place, folders, names) in enumerate(os.walk(folder)):
        if entered == _MOST_FOLDERS:
            yield None
            return
        at = Path(place)
        if at != folder and (at.parent in libraries or is_library(at)):
            libraries.add(at)
        inner = (Path(place, each) for each in sorted(folders))
        folders[:] = [e.name for e in inner if _is_entered(e, device) and not leaves_out(e)]
        found = (Path(place, name) for name in sorted(names))
        mine = (each for each in found if not leaves_out(each))
        if at in libraries:
            mine = (each for each in mine if not is_python(each.name))
        yield from (each for each in mine if _may_be_read(each) and each.is_file())


def _is_entered(folder: Path, device: int) -> bool:
    if folder.name.startswith(".") or folder.name in _NOT_ENTERED:
        return False
    try:
        return folder.lstat().st_dev == device
    except OSError:
        return False


def _may_be_read(path: Path) -> bool:
    if is_python(path.name):
        return _configures(path)
    is_config = path.suffix.lower() in _SUFFIXES or path.name in _NAMES
    return is_config and path.name not in _NO_CONFIGS


def _configures(path: Path) -> bool:
    """Whether a Python file may call a known class; tests do not count, as they call it to fail."""
    from tunec.compiler.lints.python_files import is_of_tests, may_configure

    try:
        text = read_bytes(path).decode("utf-8")
    except (Unreadable, UnicodeDecodeError):
        return False
    return not is_of_tests(str(path)) and (may_configure(text) or _starts(path.name, text))


def _starts(name: str, text: str) -> bool:
    """Whether a notebook starts a training run through the shell."""
    from tunec.compiler.frontend.notebook import is_notebook, read_notebook
    from tunec.compiler.frontend.shell_nodes import starts_training

    cells = read_notebook(text, name)[0] if is_notebook(name) else None
    return cells is not None and starts_training(cells.shell)


def alternatives(reading: Reading) -> Iterator[Reading]:
    """The runs in a reading: each takes one of the alternatives of a file.

    Each command of a shell script is combined with the alternatives of the file that it starts;
    other files with several alternatives are read separately. Of the files that the file names,
    directly or indirectly, an alternative has its own, and not those that only other alternatives
    name.
    """
    for each in _of_commands(reading):
        yield from map(_overlaid, _of_files(each))


def _of_commands(reading: Reading, done: Set[str] = frozenset()) -> Iterator[Reading]:
    left = (each for each in _several(reading, is_shell=True) if each[0] not in done)
    name, numbers = next(left, ("", []))
    if not numbers:
        yield reading
    for number in numbers:
        yield from _of_commands(_narrowed(reading, name, number), done | {name})


def _of_files(reading: Reading) -> Iterator[Reading]:
    several = dict(_several(reading, is_shell=False))
    if not several:
        yield reading
    for name, number in ((name, each) for name, every in several.items() for each in every):
        mine = _narrowed(reading, name, number)
        kept = (each for each in mine.documents if each.name == name or each.name not in several)
        yield replace(mine, documents=tuple(kept))


_OVER_FILES: Final = (*TRL, "llamafactory")
"""Kinds whose flags win over the file that the command names: trl 0.9.6 to 1.16.0 scripts/utils.py
`TrlParser.parse_args_and_config`; llamafactory 0.9.5 hparams/parser.py `read_args`."""


def _overlaid(reading: Reading) -> Reading:
    """A reading in which flags override the files that their commands name."""
    flags = [e for e in reading.documents if e.format == "shell" and e.kind in _OVER_FILES]
    if not flags:
        return reading
    return replace(
        reading,
        documents=tuple(_under_flags(each, flags, reading.named) for each in reading.documents),
    )


def _under_flags(
    document: Document, flags: Sequence[Document], named: Sequence[FileReference]
) -> Document:
    """A document overridden by the flags of the commands that name it."""
    by = {each.by for each in named if Path(each.file).resolve() == Path(document.name).resolve()}
    mine = [e for e in flags if e.kind == document.kind and e.name in by]
    if not mine or document.is_view or document.format == "shell":
        return document
    hidden = {key for each in mine for key in each.unknown}
    given = {key: node for each in mine for key, node in (each.root.fields or {}).items()}
    fields = {
        **(document.root.fields or {}),
        **{key: replace(node, is_inline_json=True) for key, node in given.items()},
    }
    kept = {key: node for key, node in fields.items() if key not in hidden}
    root = replace(document.root, fields=kept)
    return replace(document, root=root, unknown=document.unknown | hidden)


def _several(reading: Reading, *, is_shell: bool) -> Iterator[tuple[str, list[int]]]:
    """The files with several alternatives, and the alternatives' numbers."""
    runs: dict[str, set[int]] = {}
    for each in reading.documents:
        if (each.format == "shell") is is_shell:
            runs.setdefault(each.name, set()).update(each.alternatives)
    return ((name, sorted(every)) for name, every in runs.items() if len(every) > 1)


def _narrowed(reading: Reading, name: str, number: int) -> Reading:
    """A reading with one alternative of a file, without files that only other alternatives name."""

    def is_mine(document: Document) -> bool:
        return document.name != name or number in (document.alternatives or {number})

    of_file = [each for each in reading.named if each.by == name]
    mine = [each for each in of_file if number in (each.runs or {number})]
    strange = _reached(of_file, reading.named) - _reached(mine, reading.named)
    others = (each for each in reading.documents if not is_mine(each) and each.kind == "launch")
    return replace(
        reading,
        beside=(*reading.beside, *others),
        documents=tuple(
            each
            for each in reading.documents
            if is_mine(each) and not (strange and Path(each.name).resolve() in strange)
        ),
        missing=tuple(each for each in reading.missing if is_mine(each.place.document)),
    )


def _reached(first: Sequence[FileReference], every: Sequence[FileReference]) -> frozenset[Path]:
    """The resolved paths of the named files and, in turn, of the files that they name.

    `first` is a part of `every`.
    """
    names = {name for each in every for name in (each.by, each.file)}
    place = {name: Path(name).resolve() for name in names}
    found = {place[each.file] for each in first}
    steps = {(place[each.by], place[each.file]) for each in every}
    while more := {file for by, file in steps if by in found} - found:
        found |= more
    return frozenset(found)
