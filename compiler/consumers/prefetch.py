"""Fetch the packages of every known set before anything asks for them.

    python -m tunec.compiler.consumers.prefetch

Tests make environments one after another, each waiting for its packages. This fetches them beside
the checks that need none. What cannot be had is said and left: who needs it finds out, and says so.
"""

import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from tunec.compiler.consumers.environments import EnvironmentUnavailable, default_cache
from tunec.compiler.consumers.packages import unpacked
from tunec.compiler.consumers.sets import SETS

_AT_ONCE: Final = 4
"""They wait for the network, not for the processor."""


def main() -> int:
    """Fill the store; return 0, also without a network."""
    cache = default_cache()
    cache.mkdir(parents=True, exist_ok=True)
    asked = rounds(pin for known in SETS.values() for pin in known.requirements)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        complaints = filter(None, pool.map(partial(_fetched, cache=cache), asked))
        sys.stderr.writelines(f"{each}\n" for each in complaints)
    return 0


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


if __name__ == "__main__":
    sys.exit(main())
