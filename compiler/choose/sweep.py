"""Values to try in a spec: `data.sequence=2k..32k`, `method.lora.rank=8,16,64`."""

import re
from collections.abc import Sequence
from itertools import product
from typing import Final

from msgspec import Struct

from tunec.schemas.units import KIB

MOST: Final = 64
"""The most combinations of all swept values."""
_RANGE: Final = re.compile(r"([1-9]\d{0,9})([kKM]?)\.\.([1-9]\d{0,9})([kKM]?)", re.ASCII)
_SCALES: Final = {"": 1, "k": KIB, "K": KIB, "M": KIB**2}
"""Binary prefixes: a range doubles its values, so its `2k` is 2048."""


class NotASweep(ValueError):
    """A text that is not a sweep; the message says why, `remedy` how to fix it."""

    def __init__(self, why: str, remedy: str = "write data.sequence=2k..32k or =1024,4096") -> None:
        super().__init__(why)
        self.remedy = remedy


class Sweep(Struct, frozen=True):
    """A path in the spec, and the values that it takes in turn."""

    path: str
    values: tuple[str, ...]

    def settings(self) -> tuple[tuple[str, str], ...]:
        """Each value with its path."""
        return tuple((self.path, value) for value in self.values)


def read_sweep(text: str) -> Sweep:
    """Read one sweep. Raises NotASweep.

    `a..b` stands for a, 2a, 4a and so on, and always ends with b; `a,b,c` lists the values.
    """
    path, equals, values = text.partition("=")
    if not equals or not path.strip():
        raise NotASweep("a sweep must have the form path=values")
    found = _doubled(values.strip()) or tuple(each.strip() for each in values.split(","))
    if not all(found):
        why = f"`{values}` has an empty value" if values.strip() else f"`{path}` has no value"
        raise NotASweep(why)
    if len(set(found)) < len(found):
        raise NotASweep(f"`{values}` has a value twice", "give each value once")
    if len(found) > MOST:
        raise NotASweep(f"{len(found)} values are given, and at most {MOST} are swept")
    return Sweep(path.strip(), found)


def combinations(sweeps: Sequence[Sweep]) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Every combination as paths with values, the first sweep's value changing last.

    Raises NotASweep if a path is swept twice, or if there are too many combinations.
    """
    paths = [each.path for each in sweeps]
    again = next((path for at, path in enumerate(paths) if path in paths[:at]), None)
    if again is not None:
        raise NotASweep(f"`{again}` is swept twice", "give all its values in one --sweep")
    found = tuple(product(*(each.settings() for each in sweeps)))
    if len(found) > MOST:
        raise NotASweep(
            f"the sweeps make {len(found)} combinations, and at most {MOST} are tried",
            "sweep fewer values",
        )
    return found


def _doubled(text: str) -> tuple[str, ...]:
    match = _RANGE.fullmatch(text)
    if match is None:
        if ".." in text:
            raise NotASweep(f"`{text}` is not a range, such as 2k..32k")
        return ()
    first, last = int(match[1]) * _SCALES[match[2]], int(match[3]) * _SCALES[match[4]]
    if first > last:
        raise NotASweep(f"`{text}` begins above its end", "write the smaller number first")
    found = [first]
    while found[-1] * 2 < last:
        found.append(found[-1] * 2)
    return tuple(map(str, dict.fromkeys((*found, last))))
