"""Grouping of clusters: the effects on a thousand clusters become a few sentences.

Pairs form a group if they share a fate and the same slots change, with categorical slots changing
to the same value. A group is named after the trait that distinguishes its clusters from all others,
such as the device, its memory or the number of nodes; if there is no such trait, the clusters are
listed.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.review.diff.effects import Effect, Fate, SlotChange
from tunec.compiler.review.diff.meanings import KINDS, Kind
from tunec.compiler.review.outcome import Traits
from tunec.schemas.units import format_bytes

_NAMED: Final = 3
"""How many clusters of a group are listed before the rest is only counted."""


class Group(Struct, frozen=True):
    """Pairs on which a change has the same effect."""

    effects: tuple[Effect, ...]
    where: str
    """A description of the pairs: `the 60 with 40.0 GiB a device`, or their names."""

    @property
    def fate(self) -> Fate:
        """Whether the pairs fit before and after."""
        return self.effects[0].fate

    @property
    def kind(self) -> Kind:
        """The class of the change."""
        return self.effects[0].kind

    @property
    def slots(self) -> tuple[SlotChange, ...]:
        """The changed slots of the first pair."""
        return self.effects[0].slots

    def values(self, slot: str) -> tuple[list[Any], list[Any]]:
        """The distinct old and new values of a slot over the group, in the order of the pairs."""
        changes = [each for effect in self.effects for each in effect.slots if each.slot == slot]
        return (
            list(dict.fromkeys(each.old for each in changes)),
            list(dict.fromkeys(each.new for each in changes)),
        )


def grouped(effects: Iterable[Effect], every: Sequence[Traits | None]) -> tuple[Group, ...]:
    """Group the effects, the most severe class first, then the largest group.

    `every` holds the traits of all clusters that were compared, whether anything changes on them or
    not.
    """
    found: dict[Hashable, list[Effect]] = {}
    for effect in effects:
        found.setdefault(_key(effect), []).append(effect)
    groups = [Group(tuple(each), _where(each, every)) for each in found.values()]
    return tuple(sorted(groups, key=lambda g: (KINDS.index(g.kind), -len(g.effects), g.where)))


def _key(effect: Effect) -> Hashable:
    return (effect.fate, effect.kind, tuple(_group_key(change) for change in effect.slots))


def _group_key(change: SlotChange) -> Hashable:
    """One slot's part of the key of a group, in which numbers may differ but words may not."""
    if isinstance(change.new, bool | str) or change.slot == "zero.stage":
        return (change.slot, change.old, change.new)
    return change.slot


_TRAITS: Final[tuple[Callable[[Traits], tuple[Hashable, str]], ...]] = (
    lambda t: (t.memory, f"with {format_bytes(t.memory)} a device"),
    lambda t: (t.devices, f"with {t.devices}"),
    lambda t: (t.capability, f"of compute capability {t.capability or 'none'}"),
    lambda t: (t.nodes, f"of {t.nodes} nodes" if t.nodes > 1 else "of one node"),
    lambda t: (t.per_node, f"with {t.per_node} devices a node"),
)


def _where(group: Sequence[Effect], every: Sequence[Traits | None]) -> str:
    if len(group) == len(every):
        return "everywhere" if len(every) > 1 else group[0].pair.cluster
    for trait in _TRAITS:
        said = _by(trait, group, every)
        if said:
            return f"the {len(group)} {said}"
    names = [effect.pair.cluster for effect in group[:_NAMED]]
    more = len(group) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def _by(
    trait: Callable[[Traits], tuple[Hashable, str]],
    group: Sequence[Effect],
    every: Sequence[Traits | None],
) -> str | None:
    """The phrase for a trait that the whole group shares and no other cluster has."""
    inside = {trait(effect.traits) for effect in group if effect.traits}
    if len(inside) != 1 or len(group) == 1:
        return None
    (value, words) = next(iter(inside))
    holders = sum(1 for traits in every if traits and trait(traits)[0] == value)
    return words if holders == len(group) else None
