"""What a pure function gave before, found again by what it asked to give it.

A function of plans, or of anything that can be asked, asks its subject one question after the other
before it has its result. Another subject that answers these alike would be asked the same and give
the same: its result need not be worked out. Clusters differ in much that nobody asks.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, TypeVar, cast

from msgspec import Struct

_Question = TypeVar("_Question", bound=Hashable)
_Result = TypeVar("_Result")

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


_Tree = dict[Any, dict[Any, "_Tree | _End"]]
"""A question with what comes next by its answer. At most points it is one question; where a
function was spared some, those who came by the same answers may have gone on in several ways."""


class Recollection(Struct, Generic[_Question, _Result]):
    """Results in a tree of questions, each asked only where those above it were answered alike.

    So a question may rest on the answers above it, as the parts of a thing do on its being there.
    """

    _root: "_Tree | _End | None" = None
    size: int = 0
    """How many results were kept."""

    def recall(self, ask: Callable[[_Question], Any]) -> _Result | None:
        """The result for a subject that answers as an earlier one did; None: there was none."""
        return cast("_Result | None", _found(self._root, ask))

    def keep(self, asked: Mapping[_Question, Any], result: _Result) -> None:
        """Keep a result by what was asked for it, in that order, and answered."""
        self._root = _grown(self._root, tuple(asked.items()), result)
        self.size += 1


def _found(at: "_Tree | _End | None", ask: Callable[[Any], Any]) -> Any:
    """The result below a point; of several ways to go on, the first that leads to one."""
    while isinstance(at, dict):
        if len(at) > 1:
            ways = (_found(below.get(ask(question)), ask) for question, below in at.items())
            return next((each for each in ways if each is not None), None)
        ((question, branches),) = at.items()
        at = branches.get(ask(question))
    if at is None:
        return None
    for question, told in at.rest:
        if ask(question) != told:
            return None
    return at.result


def _grown(at: "_Tree | _End | None", path: _Path, result: Any) -> "_Tree | _End":
    """A tree with one more result."""
    root: dict[Any, Any] = {}
    branches, told, place = root, None, 0
    while place < len(path) and at is not None:
        if isinstance(at, _End):
            if at.start == len(at.path):
                break
            first, said = at.path[at.start]
            at = {first: {said: _End(at.path, at.start + 1, at.result)}}
        branches[told] = at
        question, answer = path[place]
        branches, told, place = at.setdefault(question, {}), answer, place + 1
        at = branches.get(told)
    branches[told] = _End(path, place, result)
    found: _Tree | _End = root[None]
    return found
