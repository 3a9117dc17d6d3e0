"""The SHA-256 digests of the files of each pinned package: no other file is installed for it.

`lock.json` beside this file holds each pin that tunec installs; `just lock` rewrites it from what
the package index publishes.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from tunec.schemas.caches import cached

FILE: Final = Path(__file__).with_name("lock.json")


class Locked(Struct, frozen=True):
    """The files of one pin that pip may install."""

    sha256: tuple[str, ...]
    is_source: bool
    """Whether the pin is only published as source, whose build runs when it is installed."""


@cached()
def lock() -> Mapping[str, Locked]:
    """Every locked pin by `name==version`."""
    data = json.loads(FILE.read_text("utf-8"))
    return {
        pin: Locked(tuple(digests), is_source=kind == "sources")
        for kind, pins in data.items()
        for pin, digests in pins.items()
    }


def requirements(pins: Sequence[str]) -> str:
    """The pins as a requirements file for pip, each with its digests. Raises KeyError."""
    return "".join(f"{pin} {_hashes(lock()[pin])}\n" for pin in pins)


def _hashes(locked: Locked) -> str:
    return " ".join(f"--hash=sha256:{each}" for each in locked.sha256)


def sources(pins: Sequence[str]) -> tuple[str, ...]:
    """The names of the pins that are built here, since no wheel of them is published."""
    return tuple(pin.partition("==")[0] for pin in pins if lock()[pin].is_source)
