"""Derives factors on the resources that terms wait for from the times of runs: a pure function.

A run gives one sum but the account has many terms, so prior knowledge separates them: how far off
the whole account may be, and each resource relative to the whole (`_WIDTHS`). Let x be the
logarithms of the factors, one for all and one for each resource. The most likely x has the least
sum of ln(1 + (x / width)^2) and, for each run, of ln(1 + (r / width)^2), where r is the part of
ln(measured / accounted) that x does not explain: both have Cauchy's distribution (Lange, Little and
Taylor, "Robust statistical modeling using the t distribution", 1989). Of a difference that is usual
for the account, one run accounts for a third, as with normal distributions of both (Efron and
Morris, "Data analysis using Stein's estimator and its generalizations", 1975), and each further run
for more. A run that is far off may be an exception, and counts little until a second run agrees;
then it is used in full. Runs of other shapes, or the parts of a step that DeepSpeed's clocks
measure, separate the terms further. Two or more such runs also judge the result: factors that
forecast left-out runs worse than the plain account are halved, or not used.
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
"""The median of the account's errors on the runs that judge it, which is the width of Cauchy's
distribution."""
_OWN: Final = 1.5 * _ALL
"""The width of the part of a run's error that is its own. It is the least, in steps of a half, with
which no cluster of the sources that the account is fitted to loses more than 0.02 by one of its
runs: with as much as its cluster shares one of ten loses 0.04 (`benchmarks/calibrate.py`)."""
_APART: Final = 2 * _ALL
"""The remaining error of a run above which most of it is considered the run's own."""
_WIDTHS: Final[Mapping[Resource, float]] = {
    "products": 0.04,
    "memory": 0.06,
    "host": 0.2,
    "links": 0.3,
    "pcie": 0.3,
    "host memory": 0.2,
    "storage": 0.3,
}
"""For products and memory: how far the account's constants move when one of its sources is left out
of the fit, as the root of the mean square (`tests/analyses/time/fit.py`, `left_out`). The others
are judgements: they depend on the host, or no constant was fitted to them."""
_CLEAR: Final = 1.0
"""How much smaller the sum must be if the runs are trusted: odds of e to one."""
_ALL_WIDTHS: Final = (_ALL, *(_WIDTHS[name] for name in RESOURCES))
_ROUNDS: Final = 80
_STEP: Final = 0.7
"""Share of the way to the solution of the linear system that is taken, as the prior's weights
change on the way."""
_STEADY: Final = 1e-7

_STRENGTHS: Final = (1.0, 0.5, 0.0)
_FOLDS: Final = 10
"""The most parts into which runs are divided to judge the results of the other parts."""

SURE: Final = 3
"""The number of runs after which a margin may be lower than assumed, but never lower than in
these."""

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
"""Terms of each part of a step that logs report separately; all other terms are in `passes`."""
PASSES: Final = "passes"


class Equation(Struct, frozen=True):
    """Seconds that some resources took together, accounted and measured."""

    accounted: Mapping[Resource, float]
    measured: float
    runs: int = 1
    """The number of runs that agree on it, at most `SURE`."""


Shape = tuple[Equation, ...]
"""Equations of steps with equal plans: first of the whole step, then of its parts."""


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
    """The share of the factors to use: the one that best forecasts runs that were left out.

    The largest of equally good ones; 1.0 if there is only one shape, and so nothing to judge by.
    """
    if not known[1:]:
        return 1.0
    folds = min(len(known), _FOLDS)
    found = [_left_out(known, fold, folds) for fold in range(folds)]
    sums = [sum(errors) for errors in zip(*found, strict=True)]
    return min(zip(sums, _STRENGTHS, strict=True), key=lambda each: (each[0], -each[1]))[1]


def _left_out(known: Sequence[Shape], fold: int, folds: int) -> list[float]:
    """The errors of one part of the runs with factors from the other parts, for each strength."""
    others = [shape for at, shape in enumerate(known) if at % folds != fold]
    learnt = _logarithms(others)
    scales = [{name: exp(part * x) for name, x in learnt.items()} for part in _STRENGTHS]
    return [sum(abs(off(shape[0], scale)) for shape in known[fold::folds]) for scale in scales]


def _rounded(factor: float) -> float:
    """A factor with four decimals, or with four digits if these decimals are all zero."""
    return round(factor, 4) or float(f"{factor:.4g}")


def error(runs: Sequence[Ran], scale: Mapping[Resource, float]) -> Error | None:
    """The median of |ln(measured / accounted)| without and with the factors."""
    steps = [_whole(each.seconds) for each in runs if each.seconds and _is_current(each.seconds)]
    if not steps:
        return None
    return Error(
        before=round(median(abs(off(each, {})) for each in steps), 4),
        after=round(median(abs(off(each, scale)) for each in steps), 4),
    )


def off(each: Equation, scale: Mapping[Resource, float]) -> float:
    """ln(measured / accounted) of an equation with the given factors."""
    return log(each.measured / _sum(each, scale))


def is_alone(seconds: Seconds, scale: Mapping[Resource, float]) -> bool:
    """Whether a run is so far off that it counts little until another run agrees."""
    return _is_current(seconds) and abs(off(_whole(seconds), scale)) > _APART


def margin(runs: tuple[Ran, ...], assumed: Mapping[str, int]) -> Margin:
    """The resulting margin: any run can raise it, but only `SURE` runs can lower it.

    `assumed`: bytes outside the allocator that plans assume, by number of ranks.
    """
    beside = {}
    for ranks in ("one", "several"):
        seen = seen_beside(runs, ranks)
        if seen and (len(seen) >= SURE or max(seen) > assumed[ranks]):
            beside[ranks] = max(seen)
    return Margin(tensors=_up(seen_tensors(runs)), beside=beside)


def _up(share: float) -> float:
    """A share rounded up, so that it is not lower than what was seen."""
    return -(-share * 10_000 // 1) / 10_000


def _is_current(seconds: Seconds) -> bool:
    return seconds.edition == EDITION


def _shapes(runs: Sequence[Ran]) -> Iterator[Shape]:
    """The equations of each group of equally planned steps: of the whole step, then of its parts.

    The group's error is the median, the smaller of two; its weight is the number of runs that agree
    with it.
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
    """The measured parts of a step for which the account has terms."""
    for part, measured in seconds.parts.items():
        own = {name: time for name, time in seconds.accounted.items() if part_of(name) == part}
        if own:
            yield equation(own, measured)


def part_of(term: str) -> str:
    """The part of a step to which a term belongs."""
    return next((part for part, terms in PARTS.items() if term in terms), PASSES)


def equation(accounted: Mapping[str, float], measured: float, runs: int = 1) -> Equation:
    """The equation of terms, with their accounted seconds, that were measured together."""
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
    """The better of two minima: the one near the account, unless one near the runs clearly is."""
    near = _still(known, [0.0] * (1 + len(RESOURCES)))
    far = _still(known, _still(known, near, trusted=True))
    return far if _sum_of(known, far) < _sum_of(known, near) - _CLEAR else near


def _sum_of(known: Sequence[Equation], found: Sequence[float]) -> float:
    """The sum that is minimised."""
    own = sum(each.runs * log1p((_linear(each, found)[1] / _OWN) ** 2) for each in known)
    return own + sum(log1p((x / width) ** 2) for x, width in zip(found, _ALL_WIDTHS, strict=True))


def _still(known: Sequence[Equation], found: list[float], *, trusted: bool = False) -> list[float]:
    """Do Gauss-Newton steps until they converge; with `trusted`, no run's error is its own."""
    for _ in range(_ROUNDS):
        step = _eliminated(*_system(known, found, trusted=trusted))
        found = [value + _STEP * change for value, change in zip(found, step, strict=True)]
        if max(map(abs, step)) < _STEADY:
            break
    return found


def _system(
    known: Sequence[Equation], found: Sequence[float], *, trusted: bool
) -> tuple[list[list[float]], list[float]]:
    """The matrix and the vector of the next Gauss-Newton step."""
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
    """The weight of a square with the same slope as the logarithm of Cauchy's density."""
    return 2 / (width**2 + value**2)


def _linear(each: Equation, found: Sequence[float]) -> tuple[list[float], float]:
    """The derivatives of the sum's logarithm by each unknown, and its error."""
    scale = {name: exp(found[0] + found[1 + at]) for at, name in _names()}
    whole = _sum(each, scale)
    shares = [each.accounted.get(name, 0.0) * scale[name] / whole for name in RESOURCES]
    return [1.0, *shares], log(each.measured / whole)


def _eliminated(matrix: list[list[float]], vector: list[float]) -> list[float]:
    """The solution of a positive definite system, by elimination without pivoting."""
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
