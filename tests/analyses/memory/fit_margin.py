"""Fit the bound on what a driver shows to half of the readings, and judge it by the other half.

`python tests/analyses/memory/fit_margin.py` prints the fit and its error.
"""

from collections.abc import Iterable, Mapping
from math import ceil

from measured import Measurement, measurements

from tunec.compiler.analyses.memory.account import Account
from tunec.compiler.analyses.memory.margin import Kind, apart, kind_of

SHARE = 0.95
"""Of measured runs that the bound is to lie above."""


def excess(one: Measurement) -> float:
    """By which share of the peak a reading exceeds it, context and NCCL apart.

    The allocator's own figure has no context in it.
    """
    assert one.reading is not None
    known = one.account
    return (one.reading - unmoved(one, known)) / known.peak_bytes - 1


def unmoved(one: Measurement, known: Account) -> float:
    """Bytes of a reading that are not the allocator's."""
    if one.row["metric"] == "reserved":
        return 0
    return sum(apart(known.layout.parallel.world).values())


def quantile(values: Iterable[float], share: float) -> float:
    """The smallest of the values that at least a share of them do not exceed."""
    ordered = sorted(values)
    return ordered[ceil(share * len(ordered)) - 1]


def fitted() -> dict[Kind, float]:
    """The share that the fitted readings of each kind ask for, in whole hundredths."""
    found: dict[Kind, list[float]] = {"packed": [], "padded": []}
    for one in measurements():
        if one.reading is not None and one.is_fitted:
            found[kind_of(one.account.workload)].append(excess(one))
    return {kind: ceil(100 * quantile(sizes, SHARE)) / 100 for kind, sizes in found.items()}


def judged(shares: Mapping[Kind, float]) -> dict[str, float]:
    """Readings that judge the bound, and by how much of the peak each exceeds it."""
    others = [one for one in measurements() if one.reading is not None and not one.is_fitted]
    return {one.id: excess(one) - shares[kind_of(one.account.workload)] for one in others}


if __name__ == "__main__":
    shares = fitted()
    rest = judged(shares)
    above = {name: round(by, 3) for name, by in rest.items() if by > 0}
    print(f"reading shares {shares}; judged by {len(rest)} readings, above the bound: {above}")
