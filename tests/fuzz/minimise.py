"""A smaller case with the same fault: files, lines and then stretches of a line are left out."""

from collections.abc import Callable
from dataclasses import replace

from tests.fuzz.case import Case

_MOST_TRIALS = 400


def minimised(case: Case, fails: Callable[[Case], bool]) -> Case:
    """The smallest case that was found to fail as well; the given one if it does not fail again."""
    trials = iter(range(_MOST_TRIALS))

    def holds(each: Case) -> bool:
        return next(trials, None) is not None and fails(each)

    if not holds(case):
        return case
    for name in case.files:
        for mark in (b"\n", b" "):
            case = _with_fewer(case, name, mark, holds)
    return case


def _with_fewer(case: Case, name: str, mark: bytes, holds: Callable[[Case], bool]) -> Case:
    """Leave out runs of pieces, halves first, for as long as the fault stays."""
    pieces = case.files[name].split(mark)
    size = len(pieces) // 2
    while size:
        at = 0
        while at < len(pieces):
            fewer = [*pieces[:at], *pieces[at + size :]]
            smaller = replace(case, files={**case.files, name: mark.join(fewer)})
            if holds(smaller):
                pieces, case = fewer, smaller
            else:
                at += size
        size //= 2
    return case
