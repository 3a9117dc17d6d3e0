"""Keys without a slot: those that a spec passes through, and the reasons for the others."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.diagnostics.wording import shown
from tunec.compiler.driver import Planned, emit_for
from tunec.compiler.emit import schema
from tunec.compiler.ir.extra import Extra
from tunec.compiler.ir.plan import Plan, SlotNotSet
from tunec.compiler.ir.values import is_same
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.kinds import known_keys
from tunec.compiler.passthrough import PlacedKey, placed_alone
from tunec.compiler.read import WRONG_SHAPE, found_plain
from tunec.compiler.requirements import Asked
from tunec.compiler.target import File, Target
from tunec.compiler.translate.accounts import given_up, kept_apart
from tunec.compiler.translate.carried_keys import is_its_own
from tunec.compiler.translate.leftovers import Read, is_redundant, listed
from tunec.compiler.translate.sources import Sources
from tunec.compiler.translate.written_targets import runner
from tunec.schemas.dotted_paths import put

_AUTO: Final = "auto"
Files = tuple[File, ...]


class PassedKey(Struct, frozen=True):
    """A key of a file that a spec passes through."""

    place: Place
    extra: Extra


class DroppedKey(Struct, frozen=True):
    """A key of a file that a spec cannot express."""

    place: Place
    reason: str
    is_harmless: bool | None = None
    """Whether the new run is the same without it; None: the effect is unknown."""


def carried(
    leftovers: Iterable[Read], asked: Sequence[Asked], sources: Sources
) -> Iterator[PassedKey | DroppedKey]:
    """The outcome of each key: it is passed through if a file of the same name has it.

    Keys of its block that are left to the trainer go with it, as others would fill them in. A
    dialect's key is passed on to the program that runs it if both pass it to the Trainer.
    """
    software = sources.run.environment.software
    found = [_carried(read, asked, software, homes(read, asked, sources)) for read in leftovers]
    yield from found
    for document, block in dict.fromkeys(
        (each.place.document, each.place.path.partition(".")[0])
        for each in found
        if isinstance(each, PassedKey)
    ):
        more = (
            _carried(read, asked, software, homes(read, asked, sources))
            for read in _left_to_others(sources, document, block)
        )
        yield from (each for each in more if isinstance(each, PassedKey))


def _left_to_others(sources: Sources, document: Document, block: str) -> Iterator[Read]:
    rows = {key for entry in (document.file.entries if document.file else ()) for key in entry.keys}
    for read in sources.reads:
        is_here = read.place.document is document and read.key.startswith(f"{block}.")
        if is_here and read.place.value == _AUTO and read.key not in rows:
            yield read


def homes(read: Read, asked: Iterable[Asked], sources: Sources) -> Mapping[str, Files]:
    """The files of each requested target that may take a key of this file."""
    file, own = read.place.document.file, read.place.document.target
    if file is None or own is None:
        return {}
    heir = runner(own)
    if heir != own.name:
        shared = read.key in _trainers_keys(sources.run) and not is_its_own(read)
        every = {target.name: _used(target, sources) for target, _ in asked if shared}
        return {name: files for name, files in every.items() if name == heir}
    return {
        target.name: tuple(each for each in target.files if each.name == file.name)
        for target, _ in asked
    }


def _trainers_keys(run: LintContext) -> frozenset[str]:
    """The arguments of transformers' Trainer, which programs based on it pass on unchanged."""
    trainer = run.targets["huggingface"]
    (file,) = (each for each in trainer.files if each.name == "training_args.yaml")
    return known_keys(trainer, file)


def _used(target: Target, sources: Sources) -> Files:
    """The files of arguments that such a run has."""
    found = []
    for file in target.files:
        try:
            is_used = file.format == "yaml" and sources.known.ask(file.when)
        except (SlotNotSet, *WRONG_SHAPE):
            continue
        found += [file] if is_used else []
    return tuple(found)


def _carried(
    read: Read, asked: Sequence[Asked], software: Mapping[str, str], homes: Mapping[str, Files]
) -> PassedKey | DroppedKey:
    place = read.place
    for target, version in asked:
        mine = homes.get(target.name, ())
        if not mine:
            continue
        extra = Extra(target.name, read.key, place.value)
        found = placed_alone(extra, mine, target.dialect(version, software), schema)
        if isinstance(found, PlacedKey):
            return PassedKey(place, extra)
        return DroppedKey(place, found.message.partition(": ")[2])
    own = place.document.target
    moved = next(given_up(read), None)
    if moved is not None:
        return DroppedKey(place, moved.instead, moved.changes_nothing(place.value))
    apart = kept_apart(read)
    if apart is not None:
        return DroppedKey(place, apart)
    if own is not None and runner(own) != own.name:
        return DroppedKey(place, f"it is a key of {own.name}, but {runner(own)} will run the spec")
    return DroppedKey(place, "none of the spec's targets has such a file")


# ── keys that follow from the rest of a plan ─────────────────────────────────────────────────────


def follows(read: Read) -> bool:
    """Whether only rows without slots have a key, so that it follows from other slots."""
    file = read.place.document.file
    rows = [entry for entry in (file.entries if file else ()) if read.key in entry.keys]
    return bool(rows) and not any(entry.slots or entry.yields for entry in rows)


def differing_keys(
    sources: Sources, planned: Planned, asked: Sequence[Asked]
) -> Iterator[DroppedKey]:
    """Derived keys that differ between the files of the spec and those that were read.

    Without a plan there are no such files, and nothing is compared.
    """
    if planned.plan is None:
        return
    written = _written(planned, asked)
    for read in sources.reads:
        file = read.place.document.file
        there = written.get(file.name) if file is not None else None
        if not follows(read) or _is_met(sources.run, read, there):
            continue
        if there is None and _is_of_the_plan(read, planned.plan):
            continue  # another file says the slots that it follows from
        what = f"has {shown(there[read.key])}" if there and read.key in there else "leaves it out"
        yield DroppedKey(read.place, f"the file that the spec compiles to {what}")


def _is_met(run: LintContext, read: Read, there: Mapping[str, Any] | None) -> bool:
    place = read.place
    if there is None or read.key not in there:
        return is_redundant(run, place.document, read.key, place.value)
    one, other = (listed({"": each})[""] for each in (place.value, there[read.key]))
    return is_same(one, other)


def _is_of_the_plan(read: Read, plan: Plan) -> bool:
    """Whether the key's own row would give it the value that it has."""
    file, value = read.place.document.file, read.place.value
    rows = (entry for entry in (file.entries if file else ()) if read.key in entry.keys)
    return any(is_same(value, row.write(plan).get(read.key)) for row in rows if row.when(plan))


def _written(planned: Planned, asked: Sequence[Asked]) -> dict[str, dict[str, Any]]:
    """Every key of a plan's files by dotted path, by the name of the file."""
    if planned.plan is None or planned.facts is None:
        return {}
    found: dict[str, dict[str, Any]] = {}
    for each in asked:
        for file in emit_for(each, planned.plan, planned.facts.versions, ())[0]:
            values = {path: one.value for path, one in found_plain(file.values).items()}
            found.setdefault(file.name, values)
    return found


def extra_of(kept: Iterable[PassedKey]) -> dict[str, Any]:
    """The `extra` field of a spec."""
    found: dict[str, Any] = {}
    for each in kept:
        put(found.setdefault(each.extra.owner, {}), each.extra.path, each.extra.value)
    return found
