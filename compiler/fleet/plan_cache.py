"""What a pure function of plans gave, found again without asking each slot that it asked."""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from tunec.compiler.ir.likeness import Likeness
from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.recollection import Recollection

_Result = TypeVar("_Result")


class Alike(Generic[_Result]):
    """Results of one function, in a recollection and by what plans say in the slots it asked."""

    def __init__(self) -> None:
        self._known: Recollection[str, _Result] = Recollection()
        self._slots: dict[str, None] = {}
        """Those on which some result rests."""
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
        """Keep a result by what was asked of its plan, in that order."""
        self._known.keep(asked, result)
        if not self._slots.keys() >= asked.keys():
            self._slots |= dict.fromkeys(asked)
            self._likeness = Likeness(self._slots)
            self._results.clear()
        self._results[self._likeness.key(plan)] = result
