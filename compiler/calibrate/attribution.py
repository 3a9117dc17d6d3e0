"""From what runs took to factors on what their terms wait for: a pure function.

A run gives one sum and the account many terms, so they are told apart by what is known beforehand:
how far off the whole account may be, and each resource from the whole (`_WIDTHS`). With x their
logarithms, one for all and one for each resource, the most likely x has the least sum of
ln(1 + (x / width)^2) and, for each run, of ln(1 + (r / width)^2), where r is what x leaves of
ln(measured / accounted): both have Cauchy's distribution (Lange, Little and Taylor, "Robust
statistical modeling using the t distribution", 1989). Of a difference that is usual of the account
one run gives a third, as normal distributions of both would have it (Efron and Morris, "Data
analysis using Stein's estimator and its generalizations", 1975), and each further run more. One
that is far off may be this run's own and counts little until a second run agrees; then it is taken
whole. Runs of other shapes, or the parts of a step that DeepSpeed's clocks tell, part the terms
further. Two such runs and more also judge what follows: factors that forecast runs worse which were
left out than the plain account does are halved, or not used.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import exp, log, log1p
from statistics import median, median_high, median_low
from typing import Final

from msgspec import Struct

from tunec.compiler.analyses.time.accuracy import HALF
from tunec.compiler.analyses.time.pace import resource_of
from tunec.schemas.hardware.measurements import (
    Error,
    Margin,
    Ran,
    Seconds,
    seen_beside,
    seen_tensors,
)
from tunec.schemas.terms import EDITION, RESOURCES, Resource

_ALL: Final = log1p(HALF)
"""The median of the account's errors on the runs that judge it: of Cauchy's distribution that is
the width."""
_OWN: Final = 1.5 * _ALL
"""What of a run's error is its own. The least, in steps of a half, with which no cluster of the
sources that the account is fitted to loses more than 0.02 by one of its runs: with as much as its
cluster shares one of ten loses 0.04 (`benchmarks/calibrate.py`)."""
_APART: Final = 2 * _ALL
"""What is left of the error of a run that is mostly taken for its own."""
_WIDTHS: Final[Mapping[Resource, float]] = {
    "products": 0.04,
    "memory": 0.06,
    "host": 0.2,
    "links": 0.3,
    "pcie": 0.3,
    "host memory": 0.2,
    "storage": 0.3,
}
"""Of products and memory: how far the account's constants move when it is fitted without one of its
sources, as the root of the mean square (`tests/analyses/time/fit.py`, `left_out`). The others are
judgements: they depend on the host, or no constant was fitted to them."""
_CLEAR: Final = 1.0
"""By how much the sum must be smaller where the runs are believed: odds of e to one."""
_ALL_WIDTHS: Final = (_ALL, *(_WIDTHS[name] for name in RESOURCES))
_ROUNDS: Final = 80
_STEP: Final = 0.7
"""Of the way to where the linear system is solved: the prior's weights change on the way."""
_STEADY: Final = 1e-7

_STRENGTHS: Final = (1.0, 0.5, 0.0)
_FOLDS: Final = 10
"""Parts at most into which runs are divided to judge what the others teach."""

SURE: Final = 3
"""Runs after which a margin may also be below what is assumed, but never below what they showed."""

PARTS: Final[Mapping[str, frozenset[str]]] = {
    "update": frozenset(
        {
            "optimizer step",
            "host optimizer step",
            "offloaded gradients",
            "orthogonalisation",
            "NVMe optimizer states",
            "paged optimizer states",
        }
    ),
    "exchange": frozenset({"gradient exchange"}),
}
"""Terms of the parts of a step that logs tell apart; what is in no part is in `passes`."""
PASSES: Final = "passes"


class Equation(Struct, frozen=True):
    """Seconds that some resources took together, as accounted and as measured."""

    accounted: Mapping[Resource, float]
    measured: float
    runs: int = 1
    """How many runs agree on it, up to `SURE`."""


Shape = tuple[Equation, ...]
"""Equations of steps that were planned alike: of the whole step first, then of its parts."""


def factors(runs: Sequence[Ran]) -> dict[Resource, float]:
    """The most likely factors of the resources that some run waits for, as far as they help."""
    known = tuple(_shapes(runs))
    if not known:
        return {}
    found, strength = _logarithms(known), _strength(known)
    waited = {name for shape in known for each in shape for name in each.accounted}
    return {name: _rounded(exp(strength * found[name])) for name in RESOURCES if name in waited}


def _logarithms(known: Sequence[Shape]) -> dict[Resource, float]:
    found = _solved([each for shape in known for each in shape])
    return {name: found[0] + found[1 + at] for at, name in _names()}


def _strength(known: Sequence[Shape]) -> float:
    """How much of the factors is used: what forecasts best the runs that were left out.

    The most of what is equally good; all of it where there is but one shape, and none to judge by.
    """
    if not known[1:]:
        return 1.0
    folds = min(len(known), _FOLDS)
    found = [_left_out(known, fold, folds) for fold in range(folds)]
    sums = [sum(errors) for errors in zip(*found, strict=True)]
    return min(zip(sums, _STRENGTHS, strict=True), key=lambda each: (each[0], -each[1]))[1]


def _left_out(known: Sequence[Shape], fold: int, folds: int) -> list[float]:
    """Errors of one part of the runs by what the others teach, by strength."""
    others = [shape for at, shape in enumerate(known) if at % folds != fold]
    learnt = _logarithms(others)
    scales = [{name: exp(part * x) for name, x in learnt.items()} for part in _STRENGTHS]
    return [sum(abs(off(shape[0], scale)) for shape in known[fold::folds]) for scale in scales]


def _rounded(factor: float) -> float:
    """Four decimals, for people; of a factor that has none in these, four digits."""
    return round(factor, 4) or float(f"{factor:.4g}")


def error(runs: Sequence[Ran], scale: Mapping[Resource, float]) -> Error | None:
    """The median of |ln(measured / accounted)| without the factors and with them."""
    steps = [_whole(each.seconds) for each in runs if each.seconds and _is_current(each.seconds)]
    if not steps:
        return None
    return Error(
        before=round(median(abs(off(each, {})) for each in steps), 4),
        after=round(median(abs(off(each, scale)) for each in steps), 4),
    )


def off(each: Equation, scale: Mapping[Resource, float]) -> float:
    """ln(measured / accounted) of an equation under factors."""
    return log(each.measured / _sum(each, scale))


def is_alone(seconds: Seconds, scale: Mapping[Resource, float]) -> bool:
    """Whether a run is so far off that it counts little until another agrees."""
    return _is_current(seconds) and abs(off(_whole(seconds), scale)) > _APART


def margin(runs: tuple[Ran, ...], assumed: Mapping[str, int]) -> Margin:
    """The margin that follows: raised by any run, lowered only by `SURE` of them.

    `assumed`: bytes beside the allocator by ranks, as plans assume them.
    """
    beside = {}
    for ranks in ("one", "several"):
        seen = seen_beside(runs, ranks)
        if seen and (len(seen) >= SURE or max(seen) > assumed[ranks]):
            beside[ranks] = max(seen)
    return Margin(tensors=_up(seen_tensors(runs)), beside=beside)


def _up(share: float) -> float:
    """Rounded so that it is not below what was seen."""
    return -(-share * 10_000 // 1) / 10_000


def _is_current(seconds: Seconds) -> bool:
    return seconds.edition == EDITION


def _shapes(runs: Sequence[Ran]) -> Iterator[Shape]:
    """The equations of each step that was planned alike: of the whole, and of parts that are told.

    It has the middle of their errors, of two the smaller, and counts for those that agree with it.
    """
    alike: dict[tuple[tuple[str, float], ...], list[Seconds]] = {}
    for each in runs:
        if each.seconds is not None and _is_current(each.seconds):
            alike.setdefault(tuple(sorted(each.seconds.accounted.items())), []).append(each.seconds)
    for group in alike.values():
        errors = [off(_whole(each), {}) for each in group]
        middle = min(median_low(errors), median_high(errors), key=abs)
        agree = sum(abs(each - middle) <= _ALL for each in errors)
        together = exp(middle) * sum(group[0].accounted.values())
        whole = equation(group[0].accounted, together, min(agree, SURE))
        yield whole, *_parts(group[-1])


def _whole(seconds: Seconds) -> Equation:
    return equation(seconds.accounted, seconds.measured)


def _parts(seconds: Seconds) -> Iterator[Equation]:
    """The parts of a step that are told, where the account has terms for them."""
    for part, measured in seconds.parts.items():
        own = {name: time for name, time in seconds.accounted.items() if part_of(name) == part}
        if own:
            yield equation(own, measured)


def part_of(term: str) -> str:
    """The part of a step in which a term's seconds pass."""
    return next((part for part, terms in PARTS.items() if term in terms), PASSES)


def equation(accounted: Mapping[str, float], measured: float, runs: int = 1) -> Equation:
    """Seconds by term that were measured together."""
    sums: dict[Resource, float] = {}
    for name, seconds in accounted.items():
        resource = resource_of(name)
        sums[resource] = sums.get(resource, 0.0) + seconds
    return Equation(sums, measured, runs)


def _sum(each: Equation, scale: Mapping[Resource, float]) -> float:
    return sum(seconds * scale.get(name, 1.0) for name, seconds in each.accounted.items())


# ── the most likely factors ──────────────────────────────────────────────────────────────────────


def _names() -> Iterator[tuple[int, Resource]]:
    return iter(enumerate(RESOURCES))


def _solved(known: Sequence[Equation]) -> list[float]:
    """The better of two minima: that near the account, unless one near the runs is clearly so."""
    near = _still(known, [0.0] * (1 + len(RESOURCES)))
    far = _still(known, _still(known, near, trusted=True))
    return far if _sum_of(known, far) < _sum_of(known, near) - _CLEAR else near


def _sum_of(known: Sequence[Equation], found: Sequence[float]) -> float:
    """What is made small."""
    own = sum(each.runs * log1p((_linear(each, found)[1] / _OWN) ** 2) for each in known)
    return own + sum(log1p((x / width) ** 2) for x, width in zip(found, _ALL_WIDTHS, strict=True))


def _still(known: Sequence[Equation], found: list[float], *, trusted: bool = False) -> list[float]:
    """Gauss and Newton's steps until they are still; `trusted`: no run is far off by itself."""
    for _ in range(_ROUNDS):
        step = _eliminated(*_system(known, found, trusted=trusted))
        found = [value + _STEP * change for value, change in zip(found, step, strict=True)]
        if max(map(abs, step)) < _STEADY:
            break
    return found


def _system(
    known: Sequence[Equation], found: Sequence[float], *, trusted: bool
) -> tuple[list[list[float]], list[float]]:
    """The matrix and the vector of the next step."""
    weights = [_weight(value, width) for value, width in zip(found, _ALL_WIDTHS, strict=True)]
    size = range(len(weights))
    matrix = [[weights[row] if row == column else 0.0 for column in size] for row in size]
    vector = [-weight * value for value, weight in zip(found, weights, strict=True)]
    for each in known:
        shares, residual = _linear(each, found)
        weight = each.runs * _weight(0.0 if trusted else residual, _OWN)
        for row, share in enumerate(shares):
            vector[row] += share * residual * weight
            for column, other in enumerate(shares):
                matrix[row][column] += share * other * weight
    return matrix, vector


def _weight(value: float, width: float) -> float:
    """Of a square, where the logarithm of Cauchy's density has the same slope."""
    return 2 / (width**2 + value**2)


def _linear(each: Equation, found: Sequence[float]) -> tuple[list[float], float]:
    """How the sum's logarithm changes with each unknown, and how far it is off."""
    scale = {name: exp(found[0] + found[1 + at]) for at, name in _names()}
    whole = _sum(each, scale)
    shares = [each.accounted.get(name, 0.0) * scale[name] / whole for name in RESOURCES]
    return [1.0, *shares], log(each.measured / whole)


def _eliminated(matrix: list[list[float]], vector: list[float]) -> list[float]:
    """The solution of a positive definite system, by elimination without pivots."""
    size = len(vector)
    for at in range(size):
        for below in range(at + 1, size):
            ratio = matrix[below][at] / matrix[at][at]
            for column in range(at, size):
                matrix[below][column] -= ratio * matrix[at][column]
            vector[below] -= ratio * vector[at]
    solved = [0.0] * size
    for at in reversed(range(size)):
        rest = sum(matrix[at][column] * solved[column] for column in range(at + 1, size))
        solved[at] = (vector[at] - rest) / matrix[at][at]
    return solved
