"""Compares plans by some of their slots without reading each of them.

Plans of many clusters share most of their groups as objects (`tunec.compiler.ir.plan.build_group`).
A group's values in those slots get a number, which is looked up by the group's identity; plans with
equal numbers have equal values in all these slots.
"""

from collections.abc import Iterable
from typing import Any

from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.slots import SLOTS


class Likeness:
    """Keys of plans by their values in some slots: equal values give equal keys."""

    def __init__(self, slots: Iterable[str]) -> None:
        self._attributes: dict[str, list[str]] = {}
        """Of these slots, by their group."""
        for slot in slots:
            place = SLOTS[slot]
            self._attributes.setdefault(place.group, []).append(place.attribute)
        self._said: dict[int, tuple[object, int]] = {}
        """By the identity of a group, which is kept with the number of what it says."""
        self._numbers: dict[tuple[Any, ...], int] = {}

    def key(self, plan: Plan) -> tuple[int, ...]:
        """A number for each group that has some of these slots."""
        said = self._said
        numbers = []
        for name in self._attributes:
            group = getattr(plan, name)
            found = said.get(id(group))
            if found is None:
                found = said[id(group)] = group, self._number(name, group)
            numbers.append(found[1])
        return tuple(numbers)

    def _number(self, name: str, group: object) -> int:
        values = [getattr(group, each) for each in self._attributes[name]]
        said = (name, *values, *map(type, values))
        return self._numbers.setdefault(said, len(self._numbers))
