"""One target's files from the known slots, or all errors that prevent them."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from msgspec import Struct, field

from tunec.compiler.analyses.trainable import adapted_modules, name_modules
from tunec.compiler.diagnostics.diagnostic import Diagnostic, has_errors
from tunec.compiler.diagnostics.wording import joined
from tunec.compiler.ir.plan import SlotNotSet
from tunec.compiler.ir.values import show
from tunec.compiler.lints.kinds import kind_of
from tunec.compiler.read import WRONG_SHAPE, found_plain
from tunec.compiler.rendering import artifact
from tunec.compiler.requirements import Asked
from tunec.compiler.target import Artifact, Dialect, Target
from tunec.compiler.translate.carried_keys import CarriedKey
from tunec.compiler.translate.drafts import Draft, drafts_of, undecided, with_defaults
from tunec.compiler.translate.faults import (
    faults_of,
    in_its_own_way,
    lost_ways,
    nothing,
    with_more_memory,
)
from tunec.compiler.translate.partial import Partial
from tunec.compiler.translate.sources import Sources
from tunec.compiler.translate.written_targets import is_dialect, new_places, with_places
from tunec.compiler.unknown_releases import unsupported
from tunec.schemas.frozen import replace

_STARTING: Final = "launch."
"""Prefix of slots that the target decides, as the user asks for its launcher."""
_SCRIPT: Final = "launch.script"
_ARGUMENTS: Final = "hf"
"""The kind of file of a trainer that the user's own script starts."""
_ENVIRONMENT: Final = "launch.environment"
_LAYERS: Final = "adapter.targets"
_STARTERS: Final = frozenset(
    {"NPROC_PER_NODE", "NNODES", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "FORCE_TORCHRUN"}
)
"""Variables by which a program starts its processes itself, as the launcher does now: ms-swift
4.6.0 cli/main.py `use_torchrun` would start them once more; llamafactory 0.9.5 launcher.py."""


_ASIDE: Final = frozenset(
    {"schedule.log_steps", "runtime.dataloader_workers", "runtime.dataloader_pin_memory"}
)
"""Slots that change nothing of what is trained."""


class Written(Struct, frozen=True):
    """The files of one target, their errors, and the slots that they express."""

    artifacts: tuple[Artifact, ...]
    diagnostics: tuple[Diagnostic, ...]
    said: frozenset[str] = frozenset()
    covered: frozenset[str] = frozenset()
    """Slots with a row in its files, applicable or not."""
    kept: tuple[CarriedKey, ...] = ()
    """The keys without a slot that its files contain."""
    keys: frozenset[tuple[str, str]] = frozenset()
    """The names of its files, each with its keys."""


class Starting(Struct, frozen=True):
    """How the new run is started, for all of its files."""

    program: str | None = None
    """What a launcher starts instead of the program that was read, from `_program_of`."""
    slots: Mapping[str, Any] = field(default_factory=dict)
    """The slots that a requested target settles, such as its launcher."""


def starting_of(asked: Sequence[Asked], sources: Sources, software: Mapping[str, str]) -> Starting:
    """How the requested targets start the new run together."""
    slots = {
        slot: needed
        for target, _ in asked
        for slot, needed in target.requires.items()
        if slot.startswith(_STARTING)
    }
    return Starting(_program_of(asked, sources, software), slots)


def _program_of(
    asked: Sequence[Asked], sources: Sources, software: Mapping[str, str]
) -> str | None:
    """The command that starts the first requested trainer, if a trainer's program was read.

    A user's script that reads the trainer's file gets the new one. None: the command line names a
    script, or no trainer's file was read. Empty: the script is unknown.
    """
    tables = (each.target for each in sources.run.documents if each.target is not None)
    read = {table.name for table in tables if table.entry or table.command}
    if sources.is_given(_SCRIPT) or not read:
        return None
    script = str(sources.known.values.get(_SCRIPT) or "")
    if script.partition(" ")[0].endswith(".py") and read & {target.name for target, _ in asked}:
        places = new_places(sources.run.documents, (target for target, _ in asked))
        return shlex.join(with_places(script, places))
    started = (_started(each, sources, software) for each in asked)
    is_unnamed = not read & {target.name for target, _ in asked} and any(
        kind_of(target, file) == _ARGUMENTS for target, _ in asked for file in target.files
    )
    return next(filter(None, started), "" if is_unnamed else None)


def _started(asked: Asked, sources: Sources, software: Mapping[str, str]) -> str | None:
    """The command that starts a trainer's own program; None if it has none, or it is undecided."""
    target, version = asked
    entry, dialect = target.entry, target.dialect(version, software)
    if entry is None:
        return None
    filled = with_defaults(target, sources.known, dialect)
    with suppress(SlotNotSet):
        return shlex.join(filled.ask(lambda plan: entry(plan, dialect)))
    return None


def write(
    asked: Asked,
    sources: Sources,
    software: Mapping[str, str],
    header: str,
    *,
    is_alone: bool,
    start: Starting,
) -> Written:
    """Write the known slots as files of a target, in memory.

    `is_alone`: there is no file of DeepSpeed that another one could name.
    """
    target, version = _alone(asked[0]) if is_alone else asked[0], asked[1]
    faults = tuple(unsupported(target, version, software))
    known, unmet = _required(target, sources, start)
    if faults or has_errors(unmet):
        return Written((), (*faults, *unmet))
    dialect = target.dialect(version, software)
    known, apart = _row_by_row(target, _in_its_length(target, known), dialect)
    filled = with_defaults(target, known, dialect)
    drafts = drafts_of(target, known, filled, sources, dialect)
    ways = lost_ways(target, drafts, known, sources)
    layers = _other_names(drafts, known, sources)
    if ways or layers:
        values = {**known.values, **layers}
        known = Partial({s: v for s, v in values.items() if s not in ways}, known.possible)
        filled = with_defaults(target, known, dialect)
        drafts = drafts_of(target, known, filled, sources, dialect)
    if not drafts and not undecided(target, filled):
        return Written((), (nothing(target),))
    found = faults_of((target, version), drafts, known, filled, sources, software)
    if not drafts and not has_errors((*found, *sources.diagnostics)):
        found.append(nothing(target))
    found += in_its_own_way(target, () if is_dialect(sources.run) else ways)
    found += [_named_otherwise(target, slot) for slot in layers]
    found += (*with_more_memory(target, ways, sources), *apart)
    artifacts, faulty = ((), []) if has_errors(found) else _artifacts(drafts, header)
    rows = (each for draft in drafts for each in draft.file.entries if each.holds_in(dialect))
    return Written(
        artifacts,
        tuple(dict.fromkeys((*unmet, *found, *faulty))),
        frozenset((*layers, *(slot for draft in drafts for slot in draft.said))),
        frozenset(slot for row in rows for slot in row.slots),
        tuple(each for draft in drafts for each in draft.kept),
        frozenset((draft.file.name, key) for draft in drafts for key in found_plain(draft.values)),
    )


def _other_names(
    drafts: Sequence[Draft], known: Partial, sources: Sources
) -> Mapping[str, str | tuple[str, ...]]:
    """The layers with adapters as the model's own modules name them, if a pattern is lost.

    Empty if the model is not known, or its modules have no other names.
    """
    model, targets = sources.run.model, known.values.get(_LAYERS)
    is_lost = any(_LAYERS in draft.lost for draft in drafts)
    if model is None or not is_lost or not isinstance(targets, str):
        return {}
    modules = adapted_modules(model.architecture, targets)
    return {_LAYERS: name_modules(model.architecture, modules)} if modules else {}


def _named_otherwise(target: Target, slot: str) -> Diagnostic:
    return Diagnostic(
        "computed-in-another-way",
        "note",
        f"{target.name} has no such pattern for {slot}: the layers are written by their names",
        notes=("both match the same modules of this model",),
    )


def _alone(target: Target) -> Target:
    """The target with its files as they are if no other file is named."""
    return replace(target, files=tuple(file.alone or file for file in target.files))


def _in_its_length(target: Target, known: Partial) -> Partial:
    """The known slots with none for images, for a dialect: its length includes their tokens."""
    if not target.run_by or "data.images" in known.values:
        return known
    return Partial({**known.values, "data.images": 0, "data.image_tokens": 0}, known.possible)


_MICRO, _ACCUMULATED, _EVALUATED = "batch.micro", "batch.accumulation", "batch.evaluation"


def _row_by_row(
    target: Target, known: Partial, dialect: Dialect
) -> tuple[Partial, tuple[Diagnostic, ...]]:
    """What is known, with batches of one row where the target takes no more at once."""
    try:
        takes_one = known.ask(lambda plan: target.takes_one_row(plan, dialect))
        micro, steps = known.values[_MICRO], known.values[_ACCUMULATED]
    except (SlotNotSet, KeyError):
        return known, ()
    if not takes_one or micro == 1:
        return known, ()
    new = {_MICRO: 1, _ACCUMULATED: micro * steps, _EVALUATED: 1}
    told = joined((f"{slot} {value}" for slot, value in new.items()), "and")
    return Partial({**known.values, **new}, known.possible), (
        Diagnostic(
            "computed-in-another-way",
            "note",
            f"{target.name} takes one packed row at a time: {told} make the same step",
            notes=(
                (
                    f"{micro} rows at once, {steps} times, are as many as one row {micro * steps} "
                    "times"
                ),
            ),
        ),
    )


def _required(
    target: Target, sources: Sources, start: Starting
) -> tuple[Partial, tuple[Diagnostic, ...]]:
    """The known slots with those that the target requires, and errors where the two differ."""
    values, found = {**sources.known.values, **start.slots}, list[Diagnostic]()
    if start.program:
        values[_SCRIPT] = start.program
        if pairs := values.get(_ENVIRONMENT):
            values[_ENVIRONMENT] = tuple(pair for pair in pairs if pair[0] not in _STARTERS)
    elif start.program is not None or _is_anothers(target, sources):
        values.pop(_SCRIPT, None)  # it is the program that reads the files now
    for slot, needed in target.requires.items():
        options = sources.known.possible.get(slot, (needed,))
        has = (values[slot],) if slot in values else options
        if needed not in has and not slot.startswith(_STARTING):
            told = _beside if slot in _ASIDE else _unmet
            found.append(told(target, slot, needed, has, sources))
        values[slot] = needed
    return Partial(values, sources.known.possible), tuple(found)


def _beside(
    target: Target, slot: str, needed: Any, has: Sequence[Any], sources: Sources
) -> Diagnostic:
    """A note that the new program logs or reads data in its own way."""
    said = joined(show(slot, each) for each in has)
    return Diagnostic(
        "computed-in-another-way",
        "note",
        f"{target.name} has {slot} {show(slot, needed)}, and the run that was read {said}",
        (sources.label(slot),),
        ("what is trained is the same",),
    )


def _is_anothers(target: Target, sources: Sources) -> bool:
    """Whether another target's own script starts the run that was read."""
    return bool(sources.programs - {target.name}) and not sources.is_given(_SCRIPT)


def _unmet(
    target: Target, slot: str, needed: Any, has: Sequence[Any], sources: Sources
) -> Diagnostic:
    said = joined(show(slot, each) for each in has)
    return Diagnostic(
        "E0903",
        "error",
        f"{target.name} needs {slot} {show(slot, needed)}, but the run that was read has {said}",
        (sources.label(slot),),
        help=f"translate to another target, or use --set {slot}={show(slot, needed)}",
    )


def _artifacts(
    drafts: Sequence[Draft], header: str
) -> tuple[tuple[Artifact, ...], list[Diagnostic]]:
    files, found = list[Artifact](), list[Diagnostic]()
    for draft in drafts:
        try:
            files.append(artifact(draft.file, draft.values, (header,)))
        except WRONG_SHAPE as fault:
            found.append(
                Diagnostic(
                    "E0904", "error", f"{draft.file.name} cannot express what was read: {fault}"
                )
            )
    return tuple(files), found
