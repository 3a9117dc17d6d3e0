"""A plan that notes which slots are asked of it: what a pure function of plans depends on."""

from typing import Any

from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.slots import GROUPS, SLOTS


class WatchedPlan:
    """Stands for a plan; `asked` holds the slots that were read, in the order of first asking."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.asked: dict[str, Any] = {}

    def __getattr__(self, group: str) -> "_WatchedGroup":
        if group not in GROUPS:
            raise AttributeError(group)
        found = _WatchedGroup(group, getattr(self._plan, group), self.asked)
        self.__dict__[group] = found
        return found

    def __getitem__(self, slot: str) -> Any:
        place = SLOTS[slot]
        return getattr(getattr(self, place.group), place.attribute)

    def values(self) -> dict[str, Any]:
        """Every slot's value; all of them count as asked."""
        return {slot: self[slot] for slot in SLOTS}


class _WatchedGroup:
    """One group of a watched plan."""

    def __init__(self, name: str, group: Any, asked: dict[str, Any]) -> None:
        self._name = name
        self._group = group
        self._asked = asked

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(self._group, attribute)
        self._asked[f"{self._name}.{attribute.rstrip('_')}"] = value
        self.__dict__[attribute] = value
        return value
