"""Fetch packages before anything asks for them.

Tests make environments one after another, each waiting for its packages. This fetches them beside
the checks that need none. What cannot be had is said and left: who needs it finds out, and says so.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from tunec.compiler.consumers.environments import EnvironmentUnavailable, default_cache
from tunec.compiler.consumers.packages import unpacked

_AT_ONCE: Final = 4
"""They wait for the network, not for the processor."""


def fetch(pins: Iterable[str]) -> list[str]:
    """Fill the store; a line for each round of pins that cannot be had."""
    cache = default_cache()
    cache.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        complaints = pool.map(partial(_fetched, cache=cache), rounds(pins))
        return [f"{each}\n" for each in complaints if each]


def rounds(pins: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """The pins, each once, in lists that hold one version of a package at most.

    One call of the installer takes no two versions of a package.
    """
    versions: dict[str, list[str]] = {}
    for pin in dict.fromkeys(pins):
        versions.setdefault(pin.partition("==")[0], []).append(pin)
    deepest = max(map(len, versions.values()), default=0)
    return tuple(
        tuple(of[depth] for of in versions.values() if depth < len(of)) for depth in range(deepest)
    )


def _fetched(pins: tuple[str, ...], cache: Path) -> str:
    try:
        unpacked(pins, cache)
    except EnvironmentUnavailable as unavailable:
        return str(unavailable)
    return ""
