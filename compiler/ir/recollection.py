"""Caches of what is planned: what pure functions gave, found again by what they asked.

A function of plans, or of anything that can be asked, asks its subject one question after the other
before it has its result. Another subject that answers these alike would be asked the same and give
the same: its result need not be worked out. Clusters differ in much that nobody asks.
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


_Question = TypeVar("_Question", bound=Hashable)

_Path = tuple[tuple[Any, Any], ...]
"""Questions with their answers, in the order of asking."""


class _End(Struct, frozen=True):
    """Where only one result is left: what has to be answered alike to come to it."""

    path: _Path
    """From the root on."""
    start: int
    """Where in it this is."""
    result: Any

    @property
    def rest(self) -> _Path:
        """The questions that are left."""
        return self.path[self.start :]


class _Step(Struct):
    """A question, and what comes next by its answer."""

    question: Any
    branches: dict[Any, "_Step | _End"]
    other: "_Step | None" = None
    """What was asked here instead: what is asked depends on what is remembered already, so that
    those who came by the same answers may have gone on in several ways."""

    def asking(self, question: Any) -> "_Step":
        """The step with a question here; a new one if it was not asked yet."""
        step = self
        while step.question != question:
            if step.other is None:
                step.other = _Step(question, {})
            step = step.other
        return step


class Recollection(Struct, Generic[_Question, _Result]):
    """Results in a tree of questions, each asked only where those above it were answered alike.

    So a question may rest on the answers above it, as the parts of a thing do on its being there.
    """

    _root: "_Step | _End | None" = None
    size: int = 0
    """How many results were kept."""

    def recall(self, ask: Callable[[_Question], Any]) -> _Result | None:
        """The result for a subject that answers as an earlier one did; None: there was none."""
        return cast("_Result | None", _found(self._root, ask))

    def keep(self, asked: Mapping[_Question, Any], result: _Result) -> None:
        """Keep a result by what was asked for it, in that order, and answered."""
        self._root = _grown(self._root, tuple(asked.items()), result)
        self.size += 1


def _found(at: "_Step | _End | None", ask: Callable[[Any], Any]) -> Any:
    """The result below a point; of several ways to go on, the first that leads to one."""
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


class Grouped:
    """Writes plans as texts by group, each a pure function of the group's slots and values."""

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
