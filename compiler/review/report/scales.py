"""Scales: from an amount to a place along an axis, and the round amounts that an axis names."""

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import Final

from msgspec import Struct

_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
_BINARY: Final = tuple(float(2**power) for power in range(11))
_MOST: Final = 5
"""Parts of an axis; more would not fit a phone."""
_APART: Final = 8.0
"""Where the largest amount is this many times the smallest, an axis is logarithmic."""


class Scale(Struct, frozen=True):
    """Amounts from `low` to `high`, along 100 parts."""

    low: float
    high: float
    ticks: tuple[float, ...]
    is_log: bool = False

    def __call__(self, amount: float) -> float:
        """Where an amount is, in parts of a hundred."""
        if self.is_log:
            return 100 * log10(amount / self.low) / log10(self.high / self.low)
        return 100 * (amount - self.low) / (self.high - self.low)


def linear(most: float, *, unit: float = 1.0, binary: bool = False) -> Scale:
    """From nothing to a round amount that is at least `most`; ticks are round in `unit`."""
    step = unit * _step(most / unit / _MOST, binary=binary) if most > 0 else unit
    count = max(1, ceil(most / step - 1e-9))
    ticks = tuple(step * at for at in range(count + 1))
    return Scale(0.0, ticks[-1], ticks)


def inside(most: float) -> Scale:
    """From nothing to exactly `most`, with round ticks below it."""
    step = _step(most / _MOST, binary=False)
    return Scale(0.0, most, tuple(step * at for at in range(int(most / step + 1e-9) + 1)))


def spanning(amounts: Sequence[float], *, unit: float = 1.0, binary: bool = False) -> Scale:
    """A scale for amounts above zero: linear, or logarithmic where they lie far apart."""
    least, most = min(amounts), max(amounts)
    if most / least < _APART:
        return linear(most * 1.02, unit=unit, binary=binary)
    base = 2.0 if binary else 10.0
    first, last = (
        floor(_log(least * 0.98 / unit, base)),
        ceil(_log(most * 1.02 / unit, base)),
    )
    every = max(1, ceil((last - first) / _MOST))
    last = first + every * ceil((last - first) / every)
    ticks = tuple(unit * base**power for power in range(first, last + 1, every))
    return Scale(ticks[0], ticks[-1], ticks, is_log=True)


def _log(amount: float, base: float) -> float:
    return log10(amount) / log10(base)


def _step(least: float, *, binary: bool) -> float:
    """The smallest round step that is at least this large."""
    if binary and least >= 1:
        fitting = [step for step in _BINARY if step >= least]
        return fitting[0] if fitting else 1024.0 * ceil(least / 1024)
    size = 10.0 ** floor(log10(least))
    return next(step * size for step in _STEPS if step * size >= least * (1 - 1e-9))
