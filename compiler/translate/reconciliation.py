"""A spec that decides what was read: by its fields, then by pins for remaining differences."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from posixpath import normpath
from typing import Any, Final

from msgspec import Struct, field

from tunec.compiler.driver import Planned, emit_for, plan, written
from tunec.compiler.frontend.load import Loaded
from tunec.compiler.ir.ledger import Rank
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.passes.fit.fit import GROUPS as LAYOUT
from tunec.compiler.read import found_plain, read
from tunec.compiler.requirements import Asked
from tunec.compiler.translate.intents import Intent, Values, plain, tree
from tunec.schemas.frozen import replace

_LEADING: Final = (
    *("devices.nodes", "devices.per_node", "adapter.kind", "parallel.engine", "parallel.world"),
    *("zero.stage", "zero.offload_optimizer", "zero.offload_param", "fsdp.version"),
    *("fsdp.sharding", "activation_checkpointing.mode", "batch.global", "batch.micro"),
)
"""Slots on which others depend: these are set first, so that the others need no pin."""
_IN_ORDER: Final = (*_LEADING, *(slot for slot in SLOTS if slot not in _LEADING))
_FOLLOWING: Final = frozenset(
    {
        *("model.path", "model.family", "model.kind", "model.parameters", "devices.model"),
        *("devices.vendor", "devices.capability", "devices.memory"),
        *("adapter.trainable_parameters", "runtime.extra"),
    }
)
"""Slots that follow from the model and the hardware, which the spec names."""
_SCRIPT: Final = "launch.script"
_PATHS: Final = ("data.train", "data.evaluation")
"""Slots whose paths lose a leading `./` in a plan."""
_UNREACHED: Final = object()


class Candidate(Struct, frozen=True):
    """A spec under construction."""

    base: Mapping[tuple[str, ...], Any]
    """Fields without a slot: version, model, hardware, targets."""
    open: tuple[Intent, ...]
    """Fields that may still be set."""
    stated: tuple[Intent, ...] = ()
    pins: Mapping[str, Any] = field(default_factory=dict)

    def fields(self) -> dict[tuple[str, ...], Any]:
        """Every field that is set, by its path, without the pins."""
        return {**{each.path: each.value for each in self.stated}, **self.base}

    def data(self) -> dict[str, Any]:
        """The spec as plain data."""
        pins = {slot: plain(self.pins[slot]) for slot in SLOTS if slot in self.pins}
        return {**tree(self.fields()), **({"pin": pins} if pins else {})}

    def on(self, base: Mapping[tuple[str, ...], Any]) -> "Candidate":
        """The spec with other fields without a slot."""
        return replace(self, base=base)

    def saying(self, slot: str, value: Any) -> "Candidate":
        """The spec with a further slot set: by a field that can express it, else by a pin."""
        ways = tuple(each for each in self.open if slot in each.slots)
        if not ways:
            return replace(self, pins={**self.pins, slot: value})
        rest = tuple(each for each in self.open if each not in ways)
        return replace(self, open=rest, stated=(*self.stated, *ways))


class ReconciledSpec(Struct, frozen=True):
    """A spec with its plan, and the slots that it cannot decide as they were read."""

    candidate: Candidate
    planned: Planned
    unmet: Mapping[str, Any]
    """Slots that are decided differently whatever the spec sets, with the decided value."""

    def without(self, slots: Iterable[str]) -> "ReconciledSpec":
        """The result with slots that the spec leaves to tunec, although they were read."""
        left = {slot: _decided(self.planned, slot) for slot in slots}
        return replace(self, unmet={**self.unmet, **left})


def beginning(base: Mapping[tuple[str, ...], Any], told: Iterable[Intent]) -> Candidate:
    """The spec with the fields that a user would set in any case."""
    every = tuple(told)
    stated = tuple(each for each in every if each.is_told and each.path not in base)
    return Candidate(base, tuple(each for each in every if not each.is_told), stated)


def settled(
    candidate: Candidate,
    known: Values,
    layout: Collection[str],
    asked: Sequence[Asked],
    load: Callable[[Mapping[str, Any]], Loaded],
    *,
    wholly: bool,
) -> ReconciledSpec:
    """Set fields and pins until the plan equals what was read; `load` reads a spec given as data.

    `layout` are the slots of a layout that are pinned if none was found. `wholly` pins them even if
    tunec decides the same: for a spec whose model or hardware is still missing.
    """
    while True:
        planned = plan(load(candidate.data()), asked, repairing=False)
        slot = next(_differing(candidate, known, planned, asked), None)
        if slot is None and (wholly or planned.plan is None):
            slot = next(_unsaid(candidate, layout, planned), None)
        if slot is None:
            return ReconciledSpec(candidate, planned, _unmet(known, planned, asked))
        candidate = candidate.saying(slot, known[slot])


def refused_slots(
    found: ReconciledSpec, asked: Sequence[Asked], usual: Iterable[str]
) -> tuple[str, ...]:
    """The pins of a spec that cause an error by themselves.

    If there are none and no layout fits: default slots of the layout, which were not requested.
    """
    every = written(found.planned, asked).diagnostics
    errors = [each for each in every if each.severity == "error"]
    places = [[label.path.removeprefix("pin.") for label in each.labels] for each in errors]
    alone = tuple(slot for slot in found.candidate.pins if [slot] in places)
    if alone or not any(each.id in _NONE_FITS for each in errors):
        return alone
    return tuple(slot for slot in usual if SLOTS[slot].group in (*LAYOUT, "loss"))


_NONE_FITS: Final = ("E0701", "E0702")


def _differing(
    candidate: Candidate, known: Values, planned: Planned, asked: Sequence[Asked]
) -> Iterator[str]:
    """Slots that the spec decides differently, those first on which others depend."""
    for slot in _IN_ORDER if planned.loaded.spec is not None else ():
        if slot not in known or slot in candidate.pins or slot in _FOLLOWING:
            continue
        if not _is_met(planned, slot, known[slot], asked):
            yield slot


def _unsaid(candidate: Candidate, layout: Collection[str], planned: Planned) -> Iterator[str]:
    """Slots of the layout that the spec does not set."""
    said = {slot for each in candidate.stated for slot in each.slots}
    for slot in _IN_ORDER if planned.loaded.spec is not None else ():
        if slot in layout and slot not in candidate.pins and slot not in said:
            yield slot


def _unmet(known: Values, planned: Planned, asked: Sequence[Asked]) -> dict[str, Any]:
    return {
        slot: _decided(planned, slot)
        for slot, value in known.items()
        if slot not in _FOLLOWING and not _is_met(planned, slot, value, asked)
    }


def _is_met(planned: Planned, slot: str, value: Any, asked: Sequence[Asked]) -> bool:
    """Whether a slot is decided as it was read, or there is no plan that decides it.

    If the plan leaves it to the targets, their files decide.
    """
    found = _decided(planned, slot)
    if found in (value, _UNREACHED) or (slot in _PATHS and found == normpath(str(value))):
        return True
    if slot == _SCRIPT and isinstance(found, str):
        return found.startswith(f"{value} ")  # the trainer's own program, given its file
    return found is None and value in _as_written(planned, slot, asked)


def _decided(planned: Planned, slot: str) -> Any:
    """The value that the passes decided, even if a later one failed."""
    if planned.plan is not None:
        return planned.plan[slot]
    winner = planned.ledger.winner(slot)
    return _UNREACHED if winner is None else winner.value


def _as_written(planned: Planned, slot: str, asked: Sequence[Asked]) -> list[Any]:
    """The values of a slot in the files of the requested targets."""
    if planned.plan is None or planned.facts is None:
        return []
    found = list[Any]()
    for each in asked:
        target, version = each
        software = planned.facts.versions
        files, _ = emit_for(each, planned.plan, software, ())
        documents = {file.name: found_plain(file.values) for file in files}
        said = read(target, documents, version, software)
        found += [one.value for one in said if one.slot == slot and one.rank == Rank.OBSERVED]
    return found
