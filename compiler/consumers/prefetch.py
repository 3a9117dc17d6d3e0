"""Fetches packages before they are needed.

Tests make environments one after another, and each waits for its packages. This module fetches them
while checks run that need none. A package that cannot be fetched is reported and skipped: the test
that needs it fails by itself.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from tunec.compiler.consumers.environments import EnvironmentUnavailable, default_cache
from tunec.compiler.consumers.packages import unpacked

_AT_ONCE: Final = 4
"""Parallel fetches; they wait for the network, not for the processor."""


def fetch(pins: Iterable[str]) -> list[str]:
    """Fill the store; return a line for each round of pins that cannot be fetched."""
    cache = default_cache()
    cache.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        complaints = pool.map(partial(_fetched, cache=cache), rounds(pins))
        return [f"{each}\n" for each in complaints if each]


def rounds(pins: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """The distinct pins, in lists that hold at most one version of a package each.

    A single call of the installer cannot install two versions of a package.
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
