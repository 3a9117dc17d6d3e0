"""Caches of pure functions' results; each cache registers itself in one list.

So a long-lived process can inspect and empty all of them. Caches that belong to an object, such as
a `cached_property`, disappear with it and are not registered.
"""

from collections.abc import Callable, Hashable
from functools import _lru_cache_wrapper, lru_cache
from typing import Any, Final, Generic, NamedTuple, TypeVar

_Result = TypeVar("_Result")


class _Cache(NamedTuple):
    """One cache."""

    name: str
    is_lasting: bool
    """Whether every spec needs its results again."""
    size: Callable[[], int]
    clear: Callable[[], None]


_CACHES: Final[list[_Cache]] = []


def sizes() -> dict[str, int]:
    """The number of results in each cache, by its name; empty caches are left out."""
    found = ((each.name, each.size()) for each in _CACHES)
    return {name: size for name, size in found if size}


def forget(more_than: int) -> None:
    """Empty the caches that serve only one spec, if they hold more results than this.

    A fleet plans one spec on many clusters, and then the next spec. Nothing of the earlier spec is
    needed again, but results for tables, clusters and texts are.
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
    """Keep the results of a pure function by its arguments, at most `most`, the latest used.

    None: keep all of them, for a function with few different arguments, such as names of shipped
    tables. A `lasting` cache is not emptied with a spec.
    """

    def entered(function: Callable[..., _Result]) -> "_lru_cache_wrapper[_Result]":
        found = lru_cache(maxsize=most)(function)
        name, lasts = f"{function.__module__}.{function.__qualname__}", lasting or most is None
        _CACHES.append(_Cache(name, lasts, lambda: found.cache_info().currsize, found.cache_clear))
        return found

    return entered


def table(name: str, *, lasting: bool = False) -> dict[Any, Any]:
    """A dictionary that is registered as a cache; its user limits its size."""
    found: dict[Any, Any] = {}
    _CACHES.append(_Cache(name, lasting, found.__len__, found.clear))
    return found


class ByIdentity(Generic[_Result]):
    """Results of a function of one object, which need not be hashable; emptied when full.

    The object is kept with its result: while it is kept, no other object has its identity.
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
"""Facts that are created anew for each plan, and are compared by content."""


class BoundedCache(Generic[_Result]):
    """Results by the facts that they follow from; emptied when full.

    Devices, models and parts of a spec are read once and shared by the plans of many clusters. They
    are compared by identity, since comparing their content would cost more than most of the
    decisions that follow. They are kept with their result, as in `ByIdentity`.
    """

    def __init__(self, name: str, most: int, *, lasting: bool = False) -> None:
        self._most = most
        self._found: dict[Any, tuple[tuple[Any, ...], _Result]] = table(name, lasting=lasting)

    def of(self, told: tuple[Any, ...], equal: Hashable, make: Callable[[], _Result]) -> _Result:
        """The earlier result for the same facts and equal values, or a new one."""
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
