"""The targets to which a spec compiles so that it reproduces the files that were read."""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRAINERS, TRL, Document
from tunec.compiler.target import Target

_OF_FLAGS: Final[Mapping[str, str]] = {"accelerate launch": "launch"}
"""The target for flags of a launcher, whose dialect is separate."""

_LAUNCH: Final = "launch"


def new_places(
    documents: Iterable[Document], targets: Iterable[Target]
) -> tuple[tuple[Document, str], ...]:
    """The documents that targets write anew, each with its path in a bundle."""
    every = tuple(documents)
    return tuple(
        (each, f"{target.name}/{each.file.name}")
        for target in targets
        for each in every
        if each.file is not None and each.file in target.files
    )


def with_places(script: str, places: Iterable[tuple[Document, str]]) -> list[str]:
    """The words of a command, with the new paths of files that were read.

    A script keeps its name: its settings are written anew, and it is still started.
    """
    told = ((each, place) for each, place in places if each.format != "python")
    found = {PurePath(each.name).name: place for each, place in told}
    return [found.get(PurePath(word).name, word) for word in shlex.split(script)]


def targets_of(documents: Iterable[Document], known: Mapping[str, Target]) -> tuple[str, ...]:
    """The known targets that write what was read, or run a dialect's settings.

    A file that several targets write, such as ds_config.json, belongs to the trainer beside it.
    Trainers precede what starts them.
    """
    files: dict[str, set[str]] = {}
    every = tuple(documents)
    submitted = {each.name for each in every if _submits(each.target)}
    loops = own_loops(every)
    trains = any(each.kind in TRAINERS for each in every)
    for each in every:
        if each.target is None or each.file is None or each.name in loops:
            continue
        if each.kind == _LAUNCH and each.name in submitted and not _submits(each.target):
            continue  # the command of a job
        name = _runner(each)
        if name in known and not (trains and _is_given_to_trainer(each)):
            files.setdefault(name, set()).add(each.file.name)
    written = {name: {file.name for file in known[name].files} for name in files}
    names = tuple(sorted(files, key=lambda name: known[name].counting is None))
    return tuple(
        name
        for at, name in enumerate(names)
        if not any(
            files[name] <= written[other] and (index < at or not files[other] <= written[name])
            for index, other in enumerate(names)
            if other != name
        )
    )


_TRL: Final = "trl"


def _runner(document: Document) -> str:
    """The target that runs a document; a script that calls a trainer of TRL does as TRL's own."""
    if document.target is None or document.file is None:
        return ""
    if (document.format, document.kind in TRL) == ("python", True):
        return _TRL
    return _OF_FLAGS.get(document.file.name, runner(document.target))


def _is_given_to_trainer(document: Document) -> bool:
    """Whether a call of a script makes what the script's trainer takes: a model, an adapter."""
    return document.format == "python" and document.kind in ("model", "peft")


def own_loops(documents: Iterable[Document]) -> frozenset[str]:
    """The scripts of a run without a trainer of which adapters were read: they have own loops.

    They read none of the files that a trainer's target writes, and set what they set when they run.
    """
    every = tuple(documents)
    if any(each.kind in TRAINERS for each in every):
        return frozenset()
    return frozenset(each.name for each in every if (each.kind, each.format) == ("peft", "python"))


def runner(target: Target) -> str:
    """The name of the target that runs what was read: another one if its own is only read."""
    return target.run_by if target.run_by and target.is_read_only else target.name


def is_dialect(run: LintContext) -> bool:
    """Whether another program will run what was read."""
    return any(each.target is not None and each.target.run_by for each in run.documents)


def _submits(target: Target | None) -> bool:
    return target is not None and any(each.submits for each in target.starts)
