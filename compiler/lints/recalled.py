"""Results by what was read to come to them, in the order of reading."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tunec.compiler.lints.noted import Read

_Result = TypeVar("_Result")
_Path = tuple[tuple[Read, Any], ...]
"""What was read, with what it said."""


@dataclass(slots=True)
class _Node:
    """What is read first, and what comes next by what it says."""

    read: Read
    branches: "dict[Any, _Tree]"
    other: "_Tree | None" = None
    """Where others began by reading something else."""


@dataclass(frozen=True, slots=True)
class _End:
    """Where only one result is left: what has to be said alike to come to it."""

    rest: _Path
    result: Any


_Tree = _Node | _End


@dataclass(slots=True)
class Recalled(Generic[_Result]):
    """Results in a tree. What has been read may decide what is read next, or can be at all."""

    _root: _Tree | None = None
    size: int = 0
    """How many results were kept."""

    def recall(self, told: Mapping[Read, Any]) -> _Result | None:
        """The result for what says the same as for an earlier one; None: there was none."""
        found: _Result | None = _found(self._root, told)
        return found

    def keep(self, read: Mapping[Read, Any], result: _Result) -> None:
        """Keep a result by what was read for it, in that order, with what it said."""
        self._root = _grown(self._root, tuple(read.items()), result)
        self.size += 1

    @property
    def always(self) -> _Result | None:
        """The result that comes without reading anything, if there is one."""
        root = self._root
        return root.result if isinstance(root, _End) and not root.rest else None


def _found(at: _Tree | None, told: Mapping[Read, Any]) -> Any:
    while isinstance(at, _Node):
        below = at.branches.get(told[at.read])
        if at.other is None:
            at = below
            continue
        found = None if below is None else _found(below, told)
        if found is not None:
            return found
        at = at.other
    if at is None:
        return None
    for read, said in at.rest:
        if told[read] != said:
            return None
    return at.result


def _grown(at: _Tree | None, path: _Path, result: Any) -> _Tree:
    """A tree with one more result."""
    if at is None or not path or (isinstance(at, _End) and not at.rest):
        return _End(path, result)
    if isinstance(at, _End):
        (first, said), *rest = at.rest
        at = _Node(first, {said: _End(tuple(rest), at.result)})
    (read, said), *left = path
    if at.read == read:
        at.branches[said] = _grown(at.branches.get(said), tuple(left), result)
    else:
        at.other = _grown(at.other, path, result)
    return at
