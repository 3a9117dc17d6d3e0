"""The comparison of two sets of specs: intent, decisions, and what each cluster sees."""

from collections.abc import Iterable

from msgspec import Struct

from tunec.compiler.review.diff.effects import Effect, effect_of
from tunec.compiler.review.diff.groups import Group, grouped
from tunec.compiler.review.diff.intent import FieldChange
from tunec.compiler.review.diff.meanings import Kind, worst
from tunec.compiler.review.outcome import Outcome, Traits


class Beside(Struct, frozen=True):
    """What keeps the comparison of existing files from being whole."""

    unaccounted: str = ""
    """Why memory and time were not compared."""
    unjudged: tuple[str, ...] = ()
    """Changed keys that no slot stands for, or of which it is not clear what holds."""


class SpecChange(Struct, frozen=True):
    """One spec, or the files of a run: what was written otherwise, and what follows."""

    spec: str
    intent: tuple[FieldChange, ...]
    clusters: int
    """How many were compared."""
    groups: tuple[Group, ...]
    unplanned: int = 0
    """On how many of them there is a plan neither before nor after."""
    why_unplanned: str = ""
    """What the new spec lacks on the first of these."""
    was: str = ""
    """Its name on the old side, where that is another."""
    beside: Beside | None = None
    """Of existing files, whose keys `intent` then lists, what is left open."""

    @property
    def unjudged(self) -> tuple[str, ...]:
        """Changed keys of existing files that no slot stands for."""
        return self.beside.unjudged if self.beside is not None else ()

    @property
    def untouched(self) -> int:
        """Clusters on which nothing changes, though there is a plan."""
        return self.clusters - self.unplanned - sum(len(group.effects) for group in self.groups)

    @property
    def is_told(self) -> bool:
        """Whether there is anything to say of it."""
        return bool(self.intent or self.groups or self.was)

    @property
    def kind(self) -> Kind:
        """The gravest class on any cluster."""
        return worst([group.kind for group in self.groups])


class Comparison(Struct, frozen=True):
    """Everything that differs between old and new."""

    changed: tuple[SpecChange, ...]
    """Specs that both sides have, sorted by name; those without a difference too."""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    """Specs of which one side has faults."""

    @property
    def kind(self) -> Kind | None:
        """The gravest class of all; none if nothing differs at all."""
        kinds = [each.kind for each in self.changed if each.is_told]
        if self.removed:
            kinds.append("breaking")
        return worst(kinds) if kinds or self.added else None


def compare_spec(
    spec: str, intent: Iterable[FieldChange], outcomes: Iterable[tuple[Outcome, Outcome]]
) -> SpecChange:
    """Compare the old and the new outcome of one spec, cluster by cluster, as they come."""
    return change_of(spec, intent, (effect_of(old, new) for old, new in outcomes))


def change_of(
    spec: str,
    intent: Iterable[FieldChange],
    effects: Iterable[Effect],
    beside: Beside | None = None,
) -> SpecChange:
    """What effects come to, cluster by cluster; what does not change is counted and forgotten."""
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
