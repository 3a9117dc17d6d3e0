"""What pure functions gave, found again by what they were told being the same objects.

Devices, models and the parts of a spec are read once, and shared by the plans of many clusters. To
compare them by content would cost more than most of what is decided on them.
"""

from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, TypeVar

_Result = TypeVar("_Result")

_BY_CONTENT: Final[dict[type, Callable[[Any], Any]]] = {
    str: lambda fact: fact,
    int: lambda fact: (int, fact),
    float: lambda fact: (float, fact),
    dict: lambda fact: tuple((k, repr(v) if type(v) is dict else v) for k, v in fact.items()),
    set: frozenset,
}
"""Facts that are made anew for each plan."""


class Kept(Generic[_Result]):
    """Results by what they follow from; when there are too many, it begins anew.

    The facts are kept with their result: while they are here, nothing else has their identity.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: dict[Any, tuple[tuple[Any, ...], _Result]] = {}

    def of(self, told: tuple[Any, ...], equal: Hashable, make: Callable[[], _Result]) -> _Result:
        """The result that was made of the same facts before, and of what is equal, or a new one."""
        key = (
            equal,
            *[
                id(fact) if (told_by := _BY_CONTENT.get(type(fact))) is None else told_by(fact)
                for fact in told
            ],
        )
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= self._most:
                self._found.clear()
            found = self._found[key] = told, make()
        return found[1]
