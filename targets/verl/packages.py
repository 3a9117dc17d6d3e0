"""The releases of verl that rows were read from, and what goes with each."""

from collections.abc import Mapping
from typing import Final

from packaging.version import Version

from tunec.compiler.releases import Releases

PACKAGE: Final = "verl"
RELEASES: Final = ("0.8.0", "0.9.0", "0.9.1")
SUPPORTED: Final = Releases(">=0.8,<0.10")
SOURCE: Final = "verl 0.8.0 to 0.9.1"

_RANGES: Final[tuple[tuple[str, Mapping[str, str]], ...]] = (
    ("0.8", {}),
    ("0.9", {"transformers": ">=5.5.3,!=5.6.0,<5.11"}),
)
"""`Requires-Dist` of the wheels: 0.8.0 names no bounds, and peft has none."""
_BROUGHT: Final = (
    ("0.8", {"transformers": "4.57.6", "peft": "0.18.1"}),
    ("0.9", {"transformers": "5.10.4", "peft": "0.19.1"}),
)
"""Releases of one season within these ranges, beside which its configuration was composed."""


def ranges(version: Version) -> Mapping[str, Releases]:
    """The releases that one of verl takes, by package."""
    held = [found for since, found in _RANGES if version >= Version(since)]
    return {name: Releases(text) for name, text in (held[-1] if held else {}).items()}


def brought(version: Version) -> Mapping[str, str]:
    """The releases that go with one of verl, by package."""
    held = [found for since, found in _BROUGHT if version >= Version(since)]
    return held[-1] if held else _BROUGHT[0][1]
