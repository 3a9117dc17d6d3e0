"""The effect of a change to a spec on one cluster."""

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
"""Slots that only limit a plan, or repeat the results of the accounts, which are shown separately:
they change nothing in the run."""
Fate = Literal["fits", "no longer fits", "fits now", "still does not fit", "not compared"]
"""Whether there is a plan before and after; "not compared" if this cannot be known."""


class SlotChange(Struct, frozen=True):
    """One slot before and after, with the new plan's reason."""

    slot: str
    old: object
    new: object
    reason: str
    meaning: Meaning
    follows: bool = False
    """Whether the value follows from other slots only, at least one of which changed too."""


class Effect(Struct, frozen=True):
    """The changes for one pair of spec and cluster."""

    old: Outcome
    new: Outcome
    fate: Fate
    slots: tuple[SlotChange, ...]

    @property
    def pair(self) -> Pair:
        """The spec and cluster that were compared."""
        return self.new.pair

    @property
    def traits(self) -> Traits | None:
        """The traits that distinguish the cluster."""
        return self.new.traits or self.old.traits

    @property
    def changes(self) -> bool:
        """Whether anything changes: a decision, or whether the plan fits."""
        return bool(self.slots) or self.fate in ("no longer fits", "fits now")

    @property
    def kind(self) -> Kind:
        """The most severe class of the changes."""
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
    """The fate of a pair, from whether it had a plan before and has one now."""
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
