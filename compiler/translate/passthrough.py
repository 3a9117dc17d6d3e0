"""Keys that no slot stands for: those that a spec passes through, and why it cannot the others."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.diagnostics.wording import shown
from tunec.compiler.driver import Planned, emit_for
from tunec.compiler.emit import schema
from tunec.compiler.ir.extra import Extra
from tunec.compiler.ir.values import is_same
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.kinds import known_keys
from tunec.compiler.passthrough import Placed, placed_alone
from tunec.compiler.read import WRONG_SHAPE, found_plain
from tunec.compiler.requirements import Asked
from tunec.compiler.target import File, Target
from tunec.compiler.translate.leftovers import listed, says_nothing
from tunec.compiler.translate.partial import Unsaid
from tunec.compiler.translate.sources import Sources

_AUTO: Final = "auto"
Files = tuple[File, ...]


class Carried(Struct, frozen=True):
    """A key of a file that was read, as a spec passes it through."""

    place: Place
    extra: Extra


class Dropped(Struct, frozen=True):
    """A key of a file that was read and that a spec has no word for."""

    place: Place
    reason: str


def carried(
    leftovers: Iterable[Place], asked: Sequence[Asked], sources: Sources
) -> Iterator[Carried | Dropped]:
    """What becomes of each key: it is passed through where a file of the same name has it.

    With it go the keys of its block that are left to the trainer, which others would fill in. A
    dialect's key is passed on to the program that runs it where both hand it to the Trainer.
    """
    software = sources.run.environment.software
    found = [_carried(place, asked, software, _homes(place, asked, sources)) for place in leftovers]
    yield from found
    for document, block in dict.fromkeys(
        (each.place.document, each.place.path.partition(".")[0])
        for each in found
        if isinstance(each, Carried)
    ):
        more = (
            _carried(place, asked, software, _homes(place, asked, sources))
            for place in _left_to_others(document, block)
        )
        yield from (each for each in more if isinstance(each, Carried))


def _left_to_others(document: Document, block: str) -> Iterator[Place]:
    rows = {key for entry in (document.file.entries if document.file else ()) for key in entry.keys}
    for path, place in document.found.items():
        if path.startswith(f"{block}.") and place.value == _AUTO and path not in rows:
            yield place


def _homes(place: Place, asked: Sequence[Asked], sources: Sources) -> Mapping[str, Files]:
    """The files of each asked target that may take a key of this file."""
    file, own = place.document.file, place.document.target
    if file is None or own is None:
        return {}
    if own.run_by:
        shared = place.path in _trainers_keys(sources.run)
        every = {target.name: _used(target, sources) for target, _ in asked if shared}
        return {name: files for name, files in every.items() if name == own.run_by}
    return {
        target.name: tuple(each for each in target.files if each.name == file.name)
        for target, _ in asked
    }


def _trainers_keys(run: LintContext) -> frozenset[str]:
    """The arguments of transformers' Trainer, which the programs on it hand to it as they are."""
    trainer = run.targets["huggingface"]
    (file,) = (each for each in trainer.files if each.name == "training_args.yaml")
    return known_keys(trainer, file)


def _used(target: Target, sources: Sources) -> Files:
    """The files of arguments that a run like this has."""
    found = []
    for file in target.files:
        try:
            is_used = file.format == "yaml" and sources.known.ask(file.when)
        except (Unsaid, *WRONG_SHAPE):
            continue
        found += [file] if is_used else []
    return tuple(found)


def _carried(
    place: Place,
    asked: Sequence[Asked],
    software: Mapping[str, str],
    homes: Mapping[str, Files],
) -> Carried | Dropped:
    for target, version in asked:
        mine = homes.get(target.name, ())
        if not mine:
            continue
        extra = Extra(target.name, key_of(place), place.value)
        found = placed_alone(extra, mine, target.dialect(version, software), schema)
        if isinstance(found, Placed):
            return Carried(place, extra)
        return Dropped(place, found.message.partition(": ")[2])
    own = place.document.target
    if own is not None and own.run_by:
        return Dropped(place, f"it is a key of {own.name}, but {own.run_by} will run the spec")
    return Dropped(place, "none of the spec's targets has such a file")


# ── keys that follow from the rest of a plan ─────────────────────────────────────────────────────


def key_of(place: Place) -> str:
    """A key as rows have it: SimpleTuner takes its keys with the dashes of flags, too."""
    return place.path.lstrip("-")


def follows(place: Place) -> bool:
    """Whether only rows that say no slot have a key: what they write follows from other slots."""
    entries = place.document.file.entries if place.document.file else ()
    rows = [entry for entry in entries if key_of(place) in entry.keys]
    return bool(rows) and not any(entry.slots or entry.yields for entry in rows)


def strayed(run: LintContext, planned: Planned, asked: Sequence[Asked]) -> Iterator[Dropped]:
    """Keys that follow, where the files of the spec have them otherwise than those that were read.

    Without a plan there are no such files, and nothing can be told.
    """
    if planned.plan is None:
        return
    written = _written(planned, asked)
    for document in run.documents:
        there = written.get(document.file.name) if document.file is not None else None
        for place in document.found.values():
            if not follows(place) or _is_met(run, place, there):
                continue
            is_there = there is not None and key_of(place) in there
            what = f"has {shown(there[key_of(place)])}" if there and is_there else "leaves it out"
            yield Dropped(place, f"the file that the spec compiles to {what}")


def _is_met(run: LintContext, place: Place, there: Mapping[str, Any] | None) -> bool:
    if there is None or key_of(place) not in there:
        return says_nothing(run, place.document, key_of(place), place.value)
    one, other = (listed({"": each})[""] for each in (place.value, there[key_of(place)]))
    return is_same(one, other)


def _written(planned: Planned, asked: Sequence[Asked]) -> dict[str, dict[str, Any]]:
    """Every key of the files of a plan by dotted path, by the name of the file."""
    if planned.plan is None or planned.facts is None:
        return {}
    found: dict[str, dict[str, Any]] = {}
    for each in asked:
        for file in emit_for(each, planned.plan, planned.facts.versions, ())[0]:
            values = {path: one.value for path, one in found_plain(file.values).items()}
            found.setdefault(file.name, values)
    return found


def extra_of(kept: Iterable[Carried]) -> dict[str, Any]:
    """The `extra` of a spec."""
    found: dict[str, Any] = {}
    for each in kept:
        inner = found.setdefault(each.extra.owner, {})
        *parents, last = each.extra.path.split(".")
        for part in parents:
            inner = inner.setdefault(part, {})
        inner[last] = each.extra.value
    return found
