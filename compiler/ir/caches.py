"""Caches of what is planned: each enters itself, so that what one spec has filled can be emptied.

A fleet plans one spec on many clusters, and then another: of the one before nothing is asked again.
"""

from collections.abc import Callable
from functools import _lru_cache_wrapper, lru_cache
from typing import Any, Final, TypeVar

_Result = TypeVar("_Result")

_CACHES: "Final[list[_lru_cache_wrapper[Any]]]" = []


def cached(most: int) -> "Callable[[Callable[..., _Result]], _lru_cache_wrapper[_Result]]":
    """Keep that many results of a pure function, those last asked for, until `forget` is called."""

    def entered(function: Callable[..., _Result]) -> "_lru_cache_wrapper[_Result]":
        found = lru_cache(maxsize=most)(function)
        _CACHES.append(found)
        return found

    return entered


def forget(more_than: int) -> None:
    """Empty the caches that hold more than so many results."""
    for each in _CACHES:
        if each.cache_info().currsize > more_than:
            each.cache_clear()
