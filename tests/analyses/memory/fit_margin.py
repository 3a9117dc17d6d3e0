"""Fit the bound on what a driver shows to half of the readings, and judge it by the other half.

`python tests/analyses/memory/fit_margin.py` prints the fit and its error. Which reading belongs to
which half is a field of each row, given when the row was added: every second one of a source.
"""

from collections.abc import Mapping, Sequence
from math import ceil

from measurements import Measurement, measurements

from tunec.compiler.analyses.memory.account import Account
from tunec.compiler.analyses.memory.margin import Kind, apart, kind_of, running_ahead


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


def kind(one: Measurement) -> Kind:
    """The kind of a measured run."""
    known = one.account
    return kind_of(known.workload, known.layout.parallel.world)


def largest(values: Sequence[float]) -> float:
    """The largest value that there may be, from those seen: 2 x the largest - the second.

    The median-unbiased estimate of Robson and Whitlock (Biometrika 51, 1964).
    """
    second, first = sorted(values)[-2:]
    return 2 * first - second


def fitted() -> dict[Kind, float]:
    """The share that the fitted readings of each kind ask for, in whole hundredths."""
    found: dict[Kind, list[float]] = {"packed": [], "several": [], "padded": []}
    for one in measurements():
        if one.reading is not None and one.is_fitted:
            found[kind(one)].append(excess(one))
    return {name: ceil(100 * largest(sizes)) / 100 for name, sizes in found.items()}


def judged(shares: Mapping[Kind, float]) -> dict[str, float]:
    """Readings that judge the bound, and by how much of the peak each exceeds it."""
    others = [one for one in measurements() if one.reading is not None and not one.is_fitted]
    return {one.id: excess(one) - max(shares[kind(one)], ahead(one)) for one in others}


def ahead(one: Measurement) -> float:
    """The share of the peak that may wait to be free, where parameters come from the host."""
    known = one.account
    return running_ahead(known.workload, known.layout) / known.peak_bytes


if __name__ == "__main__":
    shares = fitted()
    rest = judged(shares)
    above = {name: round(by, 3) for name, by in rest.items() if by > 0}
    print(f"reading shares {shares}; judged by {len(rest)} readings, above the bound: {above}")
