"""What the files of a pinned package are, by SHA-256: nothing else is installed in its name.

`lock.json` beside this holds each pin that tunec installs; `just lock` writes it anew from what the
package index publishes.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from tunec.schemas.caches import cached

FILE: Final = Path(__file__).with_name("lock.json")


class Locked(Struct, frozen=True):
    """The files of one pin that pip may take."""

    sha256: tuple[str, ...]
    is_source: bool
    """Whether it is published as source alone: its build runs when it is installed."""


@cached()
def lock() -> Mapping[str, Locked]:
    """Every locked pin, by `name==version`."""
    data = json.loads(FILE.read_text("utf-8"))
    return {
        pin: Locked(tuple(digests), is_source=kind == "sources")
        for kind, pins in data.items()
        for pin, digests in pins.items()
    }


def requirements(pins: Sequence[str]) -> str:
    """The pins as pip's requirements file has them, each with its digests. Raises KeyError."""
    return "".join(f"{pin} {_hashes(lock()[pin])}\n" for pin in pins)


def _hashes(locked: Locked) -> str:
    return " ".join(f"--hash=sha256:{each}" for each in locked.sha256)


def sources(pins: Sequence[str]) -> tuple[str, ...]:
    """Names of the pins that are built here, since no wheel of them is published."""
    return tuple(pin.partition("==")[0] for pin in pins if lock()[pin].is_source)
