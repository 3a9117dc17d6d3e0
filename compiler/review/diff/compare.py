"""The comparison of two sets of specs: fields, decisions, and the effect on each cluster."""

from collections.abc import Iterable

from msgspec import Struct

from tunec.compiler.review.diff.effects import Effect, effect_of
from tunec.compiler.review.diff.groups import Group, grouped
from tunec.compiler.review.diff.intent import FieldChange
from tunec.compiler.review.diff.meanings import Kind, worst
from tunec.compiler.review.outcome import Outcome, Traits


class IgnoredParts(Struct, frozen=True):
    """The parts of existing files that a comparison has to leave out."""

    unaccounted: str = ""
    """Why memory and time are not compared."""
    unjudged: tuple[str, ...] = ()
    """Changed keys that no slot represents, or whose value in force is unclear."""


class SpecChange(Struct, frozen=True):
    """The changes to one spec, or to the files of one run, and their effects."""

    spec: str
    intent: tuple[FieldChange, ...]
    clusters: int
    """The number of clusters that were compared."""
    groups: tuple[Group, ...]
    unplanned: int = 0
    """The number of these clusters that have no plan, neither before nor after."""
    why_unplanned: str = ""
    """The new spec's first error on the first of the unplanned clusters."""
    was: str = ""
    """The spec's name on the old side, if it was renamed."""
    beside: IgnoredParts | None = None
    """What is left out when existing files are compared; `intent` then lists their keys."""

    @property
    def unjudged(self) -> tuple[str, ...]:
        """Changed keys of existing files that were not judged, as in `IgnoredParts`."""
        return self.beside.unjudged if self.beside is not None else ()

    @property
    def untouched(self) -> int:
        """The number of clusters that have a plan on which nothing changes."""
        return self.clusters - self.unplanned - sum(len(group.effects) for group in self.groups)

    @property
    def is_told(self) -> bool:
        """Whether there is anything to report."""
        return bool(self.intent or self.groups or self.was)

    @property
    def kind(self) -> Kind:
        """The most severe class on any cluster."""
        return worst([group.kind for group in self.groups])


class Comparison(Struct, frozen=True):
    """All differences between the old and the new side."""

    changed: tuple[SpecChange, ...]
    """Specs on both sides, sorted by name, including those without a difference."""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    """Specs that have errors on one side."""

    @property
    def kind(self) -> Kind | None:
        """The most severe class of all specs; None if nothing differs."""
        kinds = [each.kind for each in self.changed if each.is_told]
        if self.removed:
            kinds.append("breaking")
        return worst(kinds) if kinds or self.added else None


def compare_spec(
    spec: str, intent: Iterable[FieldChange], outcomes: Iterable[tuple[Outcome, Outcome]]
) -> SpecChange:
    """Compare the old and new outcomes of one spec, cluster by cluster, as they arrive."""
    return change_of(spec, intent, (effect_of(old, new) for old, new in outcomes))


def change_of(
    spec: str,
    intent: Iterable[FieldChange],
    effects: Iterable[Effect],
    beside: IgnoredParts | None = None,
) -> SpecChange:
    """Collect effects cluster by cluster; clusters on which nothing changes are only counted."""
    traits: list[Traits | None] = []
    changed: list[Effect] = []
    lacking: list[str] = []
    for effect in effects:
        new = effect.new
        traits.append(effect.traits)
        if effect.changes:
            changed.append(effect)
        elif effect.fate == "still does not fit":
            lacking.append(new.faults[0].message if new.faults and not lacking else "")
    groups = grouped(changed, traits)
    why = lacking[0] if lacking else ""
    return SpecChange(spec, tuple(intent), len(traits), groups, len(lacking), why, beside=beside)
