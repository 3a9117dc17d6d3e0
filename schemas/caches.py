"""Caches: each keeps what a pure function gave, and enters itself in one list.

So a process that lives long can look at all of them and empty them. What belongs to an object, such
as a `cached_property`, goes with it, and is not among them.
"""

from collections.abc import Callable, Hashable
from functools import _lru_cache_wrapper, lru_cache
from typing import Any, Final, Generic, NamedTuple, TypeVar

_Result = TypeVar("_Result")


class _Cache(NamedTuple):
    """One cache."""

    name: str
    is_lasting: bool
    """Whether what it keeps is asked for again by every spec."""
    size: Callable[[], int]
    clear: Callable[[], None]


_CACHES: Final[list[_Cache]] = []


def sizes() -> dict[str, int]:
    """How many results each cache keeps, by its name; those that keep none are left out."""
    found = ((each.name, each.size()) for each in _CACHES)
    return {name: size for name, size in found if size}


def forget(more_than: int) -> None:
    """Empty the caches of what only one spec asks for, where they hold more than so many results.

    A fleet plans one spec on many clusters, and then another: of the one before nothing is asked
    again, while what follows from tables, clusters and texts lasts.
    """
    for each in _CACHES:
        if not each.is_lasting and each.size() > more_than:
            each.clear()


def clear() -> None:
    """Empty every cache."""
    for each in _CACHES:
        each.clear()


def cached(
    most: int | None = None, *, lasting: bool = False
) -> "Callable[[Callable[..., _Result]], _lru_cache_wrapper[_Result]]":
    """Keep that many results of a pure function, those last asked for, by its arguments.

    None: all, for good, of a function that is asked of few things, such as shipped tables.
    What is `lasting` is not forgotten with a spec.
    """

    def entered(function: Callable[..., _Result]) -> "_lru_cache_wrapper[_Result]":
        found = lru_cache(maxsize=most)(function)
        name, lasts = f"{function.__module__}.{function.__qualname__}", lasting or most is None
        _CACHES.append(_Cache(name, lasts, lambda: found.cache_info().currsize, found.cache_clear))
        return found

    return entered


def table(name: str, *, lasting: bool = False) -> dict[Any, Any]:
    """A dictionary that is entered as a cache; who fills it bounds it."""
    found: dict[Any, Any] = {}
    _CACHES.append(_Cache(name, lasting, found.__len__, found.clear))
    return found


class ByIdentity(Generic[_Result]):
    """Results of a function of one object, which need not be hashable; with many it begins anew.

    The object is kept with its result: while it is here, nothing else has its identity.
    """

    def __init__(
        self, name: str, most: int, make: Callable[[Any], _Result], *, lasting: bool = False
    ) -> None:
        self._most = most
        self._make = make
        self._found: dict[int, tuple[object, _Result]] = table(name, lasting=lasting)

    def of(self, subject: object) -> _Result:
        """The result of the function for this object."""
        found = self._found.get(id(subject))
        if found is None:
            if len(self._found) >= self._most:
                self._found.clear()
            found = self._found[id(subject)] = subject, self._make(subject)
        return found[1]


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

    Devices, models and the parts of a spec are read once, and shared by the plans of many clusters:
    they are told apart by identity, since to compare them by content would cost more than most of
    what is decided on them. They are kept with their result, as in `ByIdentity`.
    """

    def __init__(self, name: str, most: int, *, lasting: bool = False) -> None:
        self._most = most
        self._found: dict[Any, tuple[tuple[Any, ...], _Result]] = table(name, lasting=lasting)

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
