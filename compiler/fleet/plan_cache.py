"""Results of pure functions of plans, found again without reading each slot that they read."""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from tunec.compiler.ir.likeness import Likeness
from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.recollection import Recollection

_Result = TypeVar("_Result")


class Alike(Generic[_Result]):
    """Results of one function, by the values of the slots that it read."""

    def __init__(self) -> None:
        self._known: Recollection[str, _Result] = Recollection()
        self._slots: dict[str, None] = {}
        """The slots that affect some result."""
        self._likeness = Likeness(())
        self._results: dict[tuple[int, ...], _Result] = {}

    def recall(self, plan: Plan) -> _Result | None:
        """The result for a plan that answers as an earlier one did; None: there was none."""
        key = self._likeness.key(plan)
        found = self._results.get(key)
        if found is None:
            found = self._known.recall(plan.__getitem__)
            if found is not None:
                self._results[key] = found
        return found

    def keep(self, plan: Plan, asked: Mapping[str, Any], result: _Result) -> None:
        """Store a result with the slots that were read, in order, and their values."""
        self._known.keep(asked, result)
        if not self._slots.keys() >= asked.keys():
            self._slots |= dict.fromkeys(asked)
            self._likeness = Likeness(self._slots)
            self._results.clear()
        self._results[self._likeness.key(plan)] = result
