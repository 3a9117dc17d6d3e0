"""What is written of plans group by group: of a group that many plans share, once."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan, values_of
from tunec.compiler.ir.slots import GROUPS

_MOST: Final = 4096


class Grouped:
    """Writes plans as texts by group, each a pure function of the group's slots and values."""

    def __init__(self, write: Callable[[Mapping[str, Any]], str]) -> None:
        self._write = write
        self._known: dict[int, tuple[object, str]] = {}
        """By the identity of a group, which is kept with its text."""

    def texts(self, plan: Plan) -> dict[str, str]:
        """The text of each group by its name, in the order of the plan."""
        return {group: self._text(group, getattr(plan, group)) for group in GROUPS}

    def _text(self, group: str, whole: object) -> str:
        found = self._known.get(id(whole))
        if found is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            found = self._known[id(whole)] = whole, self._write(values_of(group, whole))
        return found[1]
