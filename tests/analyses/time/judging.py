"""Errors of the time account on published runs, by class, and how often it ranks two rightly."""

from collections.abc import Sequence
from itertools import combinations
from math import log
from statistics import median
from typing import Final, NamedTuple

from measured_runs import Run, Split, runs
from measurements import quantile

NEAR: Final = 0.03
"""Runs whose published speeds differ by less are not ranked: so much differs between two runs of
one plan in fms-acceleration's tables."""

LATEST: Final = 4
"""The last search for published runs."""


class Judged(NamedTuple):
    """Absolute logarithms of account over publication."""

    runs: int
    median: float
    p95: float
    signed: float
    """The median with its sign: below 0 the account is too fast."""


def judged(errors: Sequence[float]) -> Judged:
    """Errors of one class in four numbers."""
    sizes = [abs(each) for each in errors]
    return Judged(len(sizes), median(sizes), quantile(sizes, 0.95), median(errors))


def by_class(split: Split, search: int = LATEST) -> dict[str, Judged]:
    """Errors of a half, all of them first, then by class, of sources found up to a search."""
    found: dict[str, list[float]] = {"all": []}
    for run in runs():
        if run.split == split and run.search <= search:
            for name in ("all", *run.classes):
                found.setdefault(name, []).append(run.error)
    return {name: judged(errors) for name, errors in found.items()}


def ranked(split: Split, search: int = LATEST) -> tuple[int, int]:
    """Pairs of options of a half that the account ranks as they were measured, of so many."""
    return ranked_of([run for run in runs() if run.split == split and run.search <= search])


def ranked_of(some: Sequence[Run]) -> tuple[int, int]:
    """Pairs that the account ranks as measured, among these runs, and all pairs compared.

    Options: runs of one source, model and device, by the seconds that a device takes for a sample
    token.
    """
    options: dict[tuple[str, ...], list[Run]] = {}
    for run in some:
        key = (run.source, str(run.settings["model"]), str(run.row["device"]))
        options.setdefault(key, []).append(run)
    pairs = [pair for group in options.values() for pair in combinations(group, 2)]
    right = [_right(*pair) for pair in pairs if abs(log(_pace(pair[0]) / _pace(pair[1]))) >= NEAR]
    return sum(right), len(right)


def _pace(run: Run) -> float:
    return run.seconds / _tokens(run)


def _tokens(run: Run) -> float:
    return run.account.tokens / run.layout.parallel.world


def _right(one: Run, other: Run) -> bool:
    told = (run.account.step_seconds / _tokens(run) for run in (one, other))
    return (next(told) < next(told)) == (_pace(one) < _pace(other))
