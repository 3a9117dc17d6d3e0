"""Caches for planning: results of pure functions, found again by the answers that they depended on.

A function of a plan reads one slot after another before it has its result. Another plan that gives
the same answers would be asked the same questions and give the same result, so the function need
not run again. Clusters differ in many facts that no function reads.
"""

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

from msgspec import Struct

from tunec.compiler.ir.plan import Plan, values_of
from tunec.compiler.ir.slots import GROUPS, SLOTS
from tunec.schemas.caches import ByIdentity

_Result = TypeVar("_Result")


class WatchedPlan:
    """A plan that records in `asked` which slots are read, in order."""

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
        """Every slot's value; all slots count as read."""
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


_Question = TypeVar("_Question", bound=Hashable)

_Path = tuple[tuple[Any, Any], ...]
"""Questions with their answers, in the order in which they were asked."""


class _End(Struct, frozen=True):
    """A leaf of the tree: the result, and the questions that still have to be answered alike."""

    path: _Path
    """All questions from the root on, with their answers."""
    start: int
    """The index in `path` at which this leaf stands."""
    result: Any

    @property
    def rest(self) -> _Path:
        """The questions that are still to be compared."""
        return self.path[self.start :]


class _Step(Struct):
    """A question, and the next step for each of its answers."""

    question: Any
    branches: dict[Any, "_Step | _End"]
    other: "_Step | None" = None
    """Another question that was asked at this point. Which question comes next depends on what is
    cached already, so subjects that gave the same answers may have gone on in several ways."""

    def asking(self, question: Any) -> "_Step":
        """The step here that asks the question; a new one if there is none yet."""
        step = self
        while step.question != question:
            if step.other is None:
                step.other = _Step(question, {})
            step = step.other
        return step


class Recollection(Struct, Generic[_Question, _Result]):
    """Results in a tree of questions; a question is asked only if all questions above it matched.

    A question may therefore depend on the answers above it, for example on a part being present.
    """

    _root: "_Step | _End | None" = None
    size: int = 0
    """The number of stored results."""

    def recall(self, ask: Callable[[_Question], Any]) -> _Result | None:
        """The result of an earlier subject that gave the same answers; None if there was none."""
        return cast("_Result | None", _found(self._root, ask))

    def keep(self, asked: Mapping[_Question, Any], result: _Result) -> None:
        """Store a result under the questions that it needed, in order, with their answers."""
        self._root = _grown(self._root, tuple(asked.items()), result)
        self.size += 1


def _found(at: "_Step | _End | None", ask: Callable[[Any], Any]) -> Any:
    """The result below a node; of several branches, the first that leads to a result."""
    while isinstance(at, _Step):
        if at.other is not None:
            found = _found(at.branches.get(ask(at.question)), ask)
            if found is not None:
                return found
            at = at.other
        else:
            at = at.branches.get(ask(at.question))
    if at is None:
        return None
    for question, told in at.rest:
        if ask(question) != told:
            return None
    return at.result


def _grown(at: "_Step | _End | None", path: _Path, result: Any) -> "_Step | _End":
    """A tree with one more result."""
    root: dict[Any, _Step | _End] = {}
    branches, told, place = root, None, 0
    while place < len(path) and at is not None:
        if isinstance(at, _End):
            if at.start == len(at.path):
                break
            first, said = at.path[at.start]
            at = _Step(first, {said: _End(at.path, at.start + 1, at.result)})
        branches[told] = at
        question, answer = path[place]
        branches, told, place = at.asking(question).branches, answer, place + 1
        at = branches.get(told)
    branches[told] = _End(path, place, result)
    return root[None]


_MOST: Final = 4096


class PlanRenderer:
    """Renders plans as text group by group; each text is a pure function of the group's values."""

    def __init__(self, name: str, write: Callable[[Mapping[str, Any]], str]) -> None:
        self._texts = {
            group: ByIdentity(f"{name} of {group}", _MOST, partial(_written, group, write))
            for group in GROUPS
        }

    def texts(self, plan: Plan) -> dict[str, str]:
        """The text of each group by its name, in the order of the plan."""
        return {group: known.of(getattr(plan, group)) for group, known in self._texts.items()}


def _written(group: str, write: Callable[[Mapping[str, Any]], str], whole: object) -> str:
    return write(values_of(group, whole))
