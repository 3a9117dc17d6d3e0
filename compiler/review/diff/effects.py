"""What a change of a spec does on one cluster."""

from typing import Final, Literal

from msgspec import Struct

from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.review.diff.meanings import Kind, Meaning, meaning_of, worst
from tunec.compiler.review.outcome import Outcome, Pair, Traits

_LIMITS: Final = frozenset(
    {
        *("devices.budget", "devices.reserve", "devices.host_budget"),
        *("job.host_memory", "job.duration"),
    }
)
"""Slots that bound a plan, or ask a cluster for what the accounts come to, which are shown
themselves: they change nothing of what runs."""
Fate = Literal["fits", "no longer fits", "fits now", "still does not fit", "not compared"]
"""Whether there is a plan, before and after; not compared: nobody can tell."""


class SlotChange(Struct, frozen=True):
    """One slot before and after, with the new plan's reason."""

    slot: str
    old: object
    new: object
    reason: str
    meaning: Meaning
    follows: bool = False
    """Whether it follows from other slots alone, one of which changed too."""


class Effect(Struct, frozen=True):
    """What changes for one pair."""

    old: Outcome
    new: Outcome
    fate: Fate
    slots: tuple[SlotChange, ...]

    @property
    def pair(self) -> Pair:
        """The pair that is meant."""
        return self.new.pair

    @property
    def traits(self) -> Traits | None:
        """What the cluster is told apart by."""
        return self.new.traits or self.old.traits

    @property
    def changes(self) -> bool:
        """Whether anything changes at all: a decision, or whether it fits."""
        return bool(self.slots) or self.fate in ("no longer fits", "fits now")

    @property
    def kind(self) -> Kind:
        """The gravest class of what changes."""
        if self.fate == "no longer fits":
            return "breaking"
        if self.fate == "fits now":
            return "performance"
        return worst([change.meaning.kind for change in self.slots])


def effect_of(old: Outcome, new: Outcome) -> Effect:
    """Compare two outcomes of one pair."""
    fate = fate_of(old.fits, new.fits)
    both = old.fits and new.fits
    return Effect(old, new, fate, _changes(old, new) if both else ())


def fate_of(before: bool, after: bool) -> Fate:
    """What becomes of a pair, by whether it had a plan and has one."""
    if before:
        return "fits" if after else "no longer fits"
    return "fits now" if after else "still does not fit"


def _changes(old: Outcome, new: Outcome) -> tuple[SlotChange, ...]:
    slots = (slot for slot in SLOTS if slot not in _LIMITS)
    changed = [slot for slot in slots if old.values[slot] != new.values[slot]]
    return tuple(
        SlotChange(
            slot,
            old.values[slot],
            new.values[slot],
            new.reason(slot),
            meaning_of(slot, old.values, new.values),
            follows=not set(changed).isdisjoint(new.follows_from(slot)),
        )
        for slot in changed
    )
