"""Errors in the files of one target, and slots that they leave open."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from packaging.version import Version

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.wording import joined
from tunec.compiler.emit import invalid
from tunec.compiler.ir.plan import SlotNotSet
from tunec.compiler.ir.values import LEFT_OPEN, show
from tunec.compiler.read import WRONG_SHAPE, found_plain, settle
from tunec.compiler.requirements import Asked
from tunec.compiler.target import Dialect, Json, Target, refused
from tunec.compiler.translate.admission import schema_of
from tunec.compiler.translate.batch_faults import other_steps
from tunec.compiler.translate.drafts import Draft, Row, undecided
from tunec.compiler.translate.partial import Partial
from tunec.compiler.translate.sources import Sources
from tunec.compiler.translate.written_targets import is_dialect
from tunec.schemas.frozen import replace

_MODEL: Final = "model.path"
_COMMAND: Final = ("launcher", "script")
"""Keys without which a launch script starts nothing."""
_PROCESSES: Final = ("nodes", "per_node")
"""Keys of a launcher that counts processes, which no default can know."""
_SLOTS: Final = {"nodes": "devices.nodes", "per_node": "devices.per_node"}
_ONE_PROCESS: Final = "python"
"""The launcher that starts one process, and counts none."""
_WHY: Final = dict.fromkeys(
    _PROCESSES,
    "starts a number of processes on each machine; for one machine, add --set devices.nodes=1",
)
_FEW: Final = 6
"""The most slots that a message names; of more it gives the number, and lists them in a note."""


def faults_of(
    asked: Asked,
    drafts: Sequence[Draft],
    known: Partial,
    filled: Partial,
    sources: Sources,
    software: Mapping[str, str],
) -> list[Diagnostic]:
    """All diagnostics about the files of one target.

    `known` are the slots that were read, `filled` the same with the defaults of the target's
    program.
    """
    target, version = asked
    dialect = target.dialect(version, software)
    lacking = {
        **_needed(drafts, sources, dialect),
        **_waiting(target, drafts, filled, sources, dialect),
    }
    found = [
        *(_unsaid(target, slot, reason, sources) for slot, reason in lacking.items()),
        *_losses(asked, drafts, known, sources),
        *_left_open(target, drafts, filled, (*known.values, *lacking)),
        *other_steps(target, drafts, known, filled, sources),
    ]
    return found if lacking else [*found, *_refused_by(asked, drafts, filled, dialect)]


def nothing(target: Target) -> Diagnostic:
    """The error that no file of the target has anything to express."""
    names = joined((file.name for file in target.files), "and")
    verb = "sets" if len(target.files) == 1 else "set"
    return Diagnostic(
        "E0907",
        "error",
        f"the files set nothing that {target.name} can express",
        notes=(f"{names} {verb} it",),
        help="also give the other files of the run, or translate to another target",
    )


def _needed(drafts: Sequence[Draft], sources: Sources, dialect: Dialect) -> dict[str, str]:
    """Slots that the program requires, or that expressing others requires, with the reason."""
    said = frozenset(slot for draft in drafts for slot in draft.said)
    found: dict[str, str] = {}
    for draft in drafts:
        for key in _missing(draft, dialect):
            rows = [row for row in draft.rows if _holds(key, row.entry.keys)]
            slot = next((row.needs or row.entry.slots[0] for row in rows if row.entry.slots), None)
            slot = slot or _SLOTS.get(key, key)
            found.setdefault(slot, f"{draft.file.name} {_WHY.get(key, f'needs {key}')}")
        for row in (each for each in draft.rows if not _is_kept(each, draft)):
            told = [slot for slot in row.entry.slots if sources.is_written(slot)]
            lacks = [slot for slot in told if slot not in said]
            if row.needs and row.needs not in row.entry.slots and lacks:
                found.setdefault(row.needs, f"it decides how {draft.file.name} says {lacks[0]}")
            elif row.needs and row.needs not in told and lacks:
                found.setdefault(row.needs, f"{draft.file.name} says it together with {lacks[0]}")
    return found


def _holds(key: str, keys: Iterable[str]) -> bool:
    """Whether a key is among others, or contains one of them."""
    return any(each == key or each.startswith(f"{key}.") for each in keys)


def _waiting(
    target: Target, drafts: Sequence[Draft], filled: Partial, sources: Sources, dialect: Dialect
) -> dict[str, str]:
    """Slots that decide whether a file exists that alone expresses others, with the reason."""
    said = frozenset(slot for draft in drafts for slot in draft.said)
    found: dict[str, str] = {}
    for decisive, files in undecided(target, filled).items():
        rows = (row for file in files for row in file.entries if row.holds_in(dialect))
        slots = dict.fromkeys(slot for row in rows for slot in row.slots)
        lost = [slot for slot in slots if sources.is_written(slot) and slot not in said]
        if lost:
            names = joined((file.name for file in files), "or")
            found[decisive] = f"it decides whether there is {names}, which says {lost[0]}"
    return found


def _missing(draft: Draft, dialect: Dialect) -> Iterator[str]:
    """Keys that the file's reader requires, by its schema or its kind."""
    known = schema_of(draft.file, dialect)
    yield from (key for key in known.get("required", ()) if key not in draft.values)
    either = [each.get("required", ()) for each in known.get("anyOf", ())]
    if either and not any(_has(draft.values, keys) for keys in either):
        waiting = (key for row in draft.rows if row.needs for key in row.entry.keys)
        yield from (key for key in waiting if [key] in either)
    is_shell = draft.file.format == "shell"
    counts = draft.values.get("launcher") not in (None, _ONE_PROCESS)
    held = {key for row in draft.rows for key in row.entry.keys if counts and key in _PROCESSES}
    wanted = (*_COMMAND, *sorted(held)) if is_shell else ()
    yield from (key for key in wanted if key not in draft.values)
    if not known and draft.file.format != "shell":
        yield from (key for row in draft.rows if row.needs == _MODEL for key in row.entry.keys)


def _has(values: Mapping[str, Json], keys: Iterable[str]) -> bool:
    return all(key in values for key in keys)


def _unsaid(target: Target, slot: str, reason: str, sources: Sources) -> Diagnostic:
    differ = tuple(
        f"{each.author}'s default is {show(slot, each.value)}"
        for each in sources.disputed.get(slot, ())
    )
    return Diagnostic(
        "E0907",
        "error",
        f"{target.name} needs {slot}, but no file sets it",
        (Label("", path=slot),),
        (reason, *differ),
        help=f"set it: {_ways(slot)}",
    )


def _ways(slot: str) -> str:
    """The options that set a slot on the command line."""
    flags = {
        "parallel.world": "--world-size N, --hardware, or ",
        "devices.nodes": "--hardware, or ",
        "devices.per_node": "--hardware, or ",
        "devices.vendor": "--hardware, or ",
        "model.path": "--model, or ",
        "model.kind": "--model, or ",
    }
    return f"{flags.get(slot, '')}--set {slot}=VALUE"


def _losses(
    asked: Asked, drafts: Sequence[Draft], known: Partial, sources: Sources
) -> Iterator[Diagnostic]:
    """Values that the target cannot express, so that its program would do something else."""
    target, version = asked
    said = frozenset(slot for draft in drafts for slot in draft.said)
    lost = {slot: draft.file.name for draft in drafts for slot in draft.lost}
    for slot, name in lost.items():
        found = _loss(
            target, version, slot, known, sources, f"no key of {name} can hold this value"
        )
        is_by_launcher = not _is_own(slot, drafts, known)
        more = f"add `--to {_LAUNCHER}`, whose file sets it, or " if is_by_launcher else ""
        yield replace(found, help=f"{more}{found.help}")
    heard = {slot: value for slot, value in known.values.items() if slot not in sources.idle}
    for slot, cannot in refused(target.cannot, said.union(lost), heard).items():
        yield _loss(target, version, slot, known, sources, cannot.reason, cannot.harmless)


_LAUNCHER: Final = "accelerate"
"""The launcher whose file sets what is the trainer's own under another launcher."""


def _is_own(slot: str, drafts: Sequence[Draft], known: Partial) -> bool:
    """Whether a slot that is lost stays the trainer's own under any launcher."""
    started = Partial({**known.values, "launch.launcher": _LAUNCHER}, known.possible)
    rows = (row.entry for draft in drafts for row in draft.rows if slot in row.lost)
    with suppress(SlotNotSet, *WRONG_SHAPE):
        return any(started.ask(entry.when) for entry in rows)
    return True


_WAYS: Final = ("loss.path", "optimizer.kernel", "attention.implementation")
"""Slots for the method of a computation: the program that runs a dialect may have its own."""
PLACES: Final = ("generation.offload_training", "generation.engine_sleeps")
"""Slots for offloading while others work: without them the run needs more memory."""


def lost_ways(
    target: Target, drafts: Sequence[Draft], known: Partial, sources: Sources
) -> frozenset[str]:
    """Methods of computation that the target's program lacks.

    For a dialect as the target, only those that no file requests.
    """
    said = frozenset(slot for draft in drafts for slot in draft.said)
    lost = frozenset(slot for draft in drafts for slot in draft.lost)
    lost |= refused(target.cannot, said | lost, known.values).keys()
    own = [slot for slot in (*_WAYS, *PLACES) if slot in lost]
    if is_dialect(sources.run):
        return frozenset(own)
    return frozenset(slot for slot in own if target.run_by and not sources.is_written(slot))


def with_more_memory(
    target: Target, slots: Collection[str], sources: Sources
) -> Iterator[Diagnostic]:
    """A warning that the new program keeps on the devices what the old one offloads."""
    left = [slot for slot in PLACES if slot in slots and sources.is_written(slot)]
    if left:
        what = joined((f"{slot} {show(slot, sources.known.values[slot])}" for slot in left), "and")
        yield Diagnostic(
            "not-carried-over",
            "warning",
            f"{target.name} cannot express {what}, so the new run needs more memory",
            tuple(map(sources.label, left)),
            tuple(dict.fromkeys(target.cannot[slot].reason for slot in left)),
            help="leave vLLM a smaller share of the device with --set "
            "generation.device_share=VALUE, or use more devices",
        )


def in_its_own_way(target: Target, slots: Collection[str]) -> Iterator[Diagnostic]:
    """A note that the new program computes the same by another method."""
    if slots:
        yield Diagnostic(
            "computed-in-another-way",
            "note",
            f"{target.name} has its own {joined(map(_called, sorted(slots)), 'and')}",
            notes=("what is computed is the same; memory and speed may differ",),
        )


def _called(slot: str) -> str:
    return slot.replace(".", " ")


OF_THE_DATA: Final = frozenset({"data.format"})
"""Slots that describe data outside of the files, which can be converted."""


def _loss(
    target: Target,
    version: Version,
    slot: str,
    known: Partial,
    sources: Sources,
    reason: str,
    instead: Sequence[Any] = (),
) -> Diagnostic:
    value = show(slot, known.values[slot])
    if slot in OF_THE_DATA:
        return Diagnostic(
            "not-carried-over",
            "warning",
            f"{target.name} does not read {value} records",
            (sources.label(slot),),
            (reason,),
            help=f"convert the data to messages, and say so with --set {slot}=none",
        )
    other = show(slot, instead[0]) if instead else "VALUE"
    winner = sources.ledger.winner(slot)
    why = () if winner is None or sources.is_written(slot) else (winner.reason,)
    return Diagnostic(
        "E0901",
        "error",
        f"{target.name} ({target.package} {version}) cannot express {slot} {value}",
        (sources.label(slot),),
        (reason, *why),
        help=f"choose another value with --set {slot}={other}, or another target",
    )


def _left_open(
    target: Target, drafts: Sequence[Draft], filled: Partial, told: Collection[str]
) -> Iterator[Diagnostic]:
    """A note about slots that no file sets and the target's program decides by default."""
    said = frozenset(slot for draft in drafts for slot in draft.said)
    open_slots = dict.fromkeys(
        slot
        for draft in drafts
        for row in draft.rows
        if row.needs and row.needs in row.entry.slots and not _is_kept(row, draft)
        for slot in row.entry.slots
        if slot not in told and slot not in said and slot not in LEFT_OPEN
    )
    taken = {slot: filled.values[slot] for slot in open_slots if slot in filled.values}
    if taken:
        what = joined(taken, "and") if len(taken) <= _FEW else f"{len(taken)} slots"
        yield Diagnostic(
            "left-to-its-default",
            "warning",
            f"no file sets {what}: {target.name} uses its own defaults",
            (Label("", path=next(iter(taken))),),
            notes=(", ".join(f"{slot} {show(slot, value)}" for slot, value in taken.items()),),
            help="set the values with --set SLOT=VALUE",
        )
    left = [slot for slot in open_slots if slot not in filled.values]
    if left:
        what = joined(left, "and") if len(left) <= _FEW else f"{len(left)} slots"
        yield Diagnostic(
            "left-unsaid",
            "note",
            f"no file sets {what}, so {target.name} is given no value",
            (Label("", path=left[0]),),
            notes=(", ".join(left),) if len(left) > _FEW else (),
            help="set the values with --set SLOT=VALUE",
        )


def _is_kept(row: Row, draft: Draft) -> bool:
    """Whether the file keeps a key of a row unchanged."""
    return any(key in row.entry.keys for each in draft.kept for key in each.keys)


def _refused_by(
    asked: Asked, drafts: Sequence[Draft], filled: Partial, dialect: Dialect
) -> Iterator[Diagnostic]:
    """Refusals by the reader's schema, and by its program although every key is valid."""
    target, version = asked
    plan = _as_written(drafts, filled, dialect).plan()
    for draft in drafts:
        yield from invalid(draft.file, draft.values, dialect)
        yield from _as_known(draft.file.check(plan, dialect))
    yield from _as_known(target.check(plan, version))


def _as_written(drafts: Sequence[Draft], filled: Partial, dialect: Dialect) -> Partial:
    """The known slots, with those of kept keys as the new files have them."""
    values = dict(filled.values)
    for draft in drafts:
        kept = frozenset(slot for each in draft.kept for slot in each.slots)
        there = {key: each.value for key, each in found_plain(draft.values).items()}
        for entry in draft.file.entries if kept else ():
            if entry.holds_in(dialect) and not kept.isdisjoint(entry.slots):
                present = {key: there[key] for key in entry.keys if key in there}
                read = settle(entry, present) if present else {}
                values |= {slot: value for slot, value in read.items() if slot in kept}
    return Partial(values, filled.possible)


def _as_known(found: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    """The diagnostics up to the first that needs an unset slot."""
    try:
        yield from found
    except (SlotNotSet, *WRONG_SHAPE):
        return
