"""The comparison of two sets of specs: intent, decisions, and what each cluster sees."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tunec.compiler.review.diff.effects import Effect, effect_of
from tunec.compiler.review.diff.groups import Group, grouped
from tunec.compiler.review.diff.intent import FieldChange
from tunec.compiler.review.diff.meaning import Kind, worst
from tunec.compiler.review.outcome import Outcome


@dataclass(frozen=True, slots=True)
class SpecChange:
    """One spec: what was written otherwise, and what follows on each cluster."""

    spec: str
    intent: tuple[FieldChange, ...]
    effects: tuple[Effect, ...]
    groups: tuple[Group, ...]

    @property
    def untouched(self) -> int:
        """Clusters on which nothing changes."""
        return sum(1 for effect in self.effects if not effect.changes)

    @property
    def kind(self) -> Kind:
        """The gravest class on any cluster."""
        return worst([effect.kind for effect in self.effects if effect.changes])


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that differs between old and new."""

    changed: tuple[SpecChange, ...]
    """Specs that both sides have, sorted by name; those without a difference too."""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    @property
    def kind(self) -> Kind | None:
        """The gravest class of all; none if nothing differs at all."""
        kinds = [each.kind for each in self.changed if each.intent or each.groups]
        if self.removed:
            kinds.append("breaking")
        return worst(kinds) if kinds or self.added else None


def compare_spec(
    spec: str,
    intent: Iterable[FieldChange],
    old: Mapping[str, Outcome],
    new: Mapping[str, Outcome],
) -> SpecChange:
    """Compare the outcomes of one spec by cluster; clusters that only one side has are left out."""
    effects = tuple(effect_of(old[name], new[name]) for name in new if name in old)
    return SpecChange(spec, tuple(intent), effects, grouped(effects))
