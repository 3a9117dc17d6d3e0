"""What a pure function of plans gave, found again without asking each slot that it asked.

Plans of many clusters share most of their groups as objects (`tunec.compiler.ir.plan.build_group`).
What a group says in the slots on which results rest has a number, looked up by the group's
identity; plans with the same numbers are alike in all these slots.
"""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Generic, TypeVar

from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.recollection import Recollection
from tunec.compiler.ir.slots import SLOTS

_Result = TypeVar("_Result")


class Alike(Generic[_Result]):
    """Results of one function, in a recollection and by the numbers of what plans say."""

    def __init__(self) -> None:
        self._known: Recollection[str, _Result] = Recollection()
        self._slots: dict[str, list[str]] = {}
        """Those on which some result rests, by their group."""
        self._said: dict[int, tuple[object, int]] = {}
        """By the identity of a group, which is kept with the number of what it says."""
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._results: dict[tuple[int, ...], _Result] = {}

    def recall(self, plan: Plan) -> _Result | None:
        """The result for a plan that answers as an earlier one did; None: there was none."""
        key = self._key(plan)
        found = self._results.get(key)
        if found is None:
            found = self._known.recall(plan.__getitem__)
            if found is not None:
                self._results[key] = found
        return found

    def keep(self, plan: Plan, asked: Mapping[str, Any], result: _Result) -> None:
        """Keep a result by what was asked of its plan, in that order."""
        self._known.keep(asked, result)
        more = [slot for slot in asked if slot not in self._slots.get(SLOTS[slot].group, ())]
        if more:
            for slot in more:
                self._slots.setdefault(SLOTS[slot].group, []).append(slot)
            for each in (self._said, self._numbers, self._results):
                each.clear()
        self._results[self._key(plan)] = result

    def _key(self, plan: Plan) -> tuple[int, ...]:
        said = self._said
        numbers = []
        for name in self._slots:
            group = getattr(plan, name)
            found = said.get(id(group))
            if found is None:
                found = said[id(group)] = group, self._number(name, group)
            numbers.append(found[1])
        return tuple(numbers)

    def _number(self, name: str, group: object) -> int:
        read = attrgetter(*(SLOTS[slot].attribute for slot in self._slots[name]))
        return self._numbers.setdefault((name, read(group)), len(self._numbers))
