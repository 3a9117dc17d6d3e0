"""Leave one out: what one run on a cluster teaches the time account about its other runs.

A cluster here is a number of devices of one source: the same machine, script and season. From each
published step time alone the factors are worked out as `tunec calibrate` does. The other step times
of that cluster are judged by them, and by what plans alike a measured one take of its error: once
all others, once those whose terms are alike (`pace.ALIKE`). Beside them stands the error with the
best constant factor, which nobody can know beforehand. `--write` renews the table in the README.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice
from math import ceil, log
from pathlib import Path
from statistics import fmean, median
from typing import Final, NamedTuple

from tunec.compiler.analyses.time.pace import ALIKE, Seen, apart, expected
from tunec.compiler.calibrate.attribution import equation as equation_of
from tunec.compiler.calibrate.attribution import factors, off
from tunec.schemas.hardware.measurements import Ran, Seconds
from tunec.schemas.terms import Resource

ROOT: Final = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), *(str(ROOT / "tests/analyses" / each) for each in ("time", "memory"))]
from measured_runs import Run, runs  # type: ignore[import-not-found]  # noqa: E402

README: Final = Path(__file__).with_name("README.md")
_START: Final = "<!-- leave one out: begin -->"
_END: Final = "<!-- leave one out: end -->"


def cluster(run: Run) -> str:
    """The name of a run's cluster: its source, its nodes, and the number and type of devices."""
    devices = run.layout.parallel.world // run.layout.nodes
    nodes = f"{run.layout.nodes} nodes of " if run.layout.nodes > 1 else ""
    return f"{run.source}, {nodes}{devices} {run.row['device']}"


def _ran(run: Run) -> Ran:
    found = Seconds(measured=run.seconds, steps=1, accounted=run.account.terms)
    devices = run.layout.parallel.world
    about = {"name": cluster(run), "when": "", "files": (), "digest": "", "tunec": ""}
    return Ran.model_validate({**about, "devices": devices, "seconds": found})


class Taught(NamedTuple):
    """Errors of a cluster's runs, as medians, before and after other runs of it are known."""

    runs: int
    plain: float
    best: float
    """With the best constant factor of all."""
    one: float
    two: float
    alike: int
    """Pairs of runs whose terms are alike."""
    plain_of_alike: float
    one_of_alike: float

    @property
    def is_halved(self) -> bool:
        """Whether one run halves the error of those alike."""
        return self.one_of_alike <= self.plain_of_alike / 2


def taught(runs: Sequence[Ran]) -> Taught:
    """What runs of one cluster teach about each other."""
    pairs = [(run, *each) for run in _spread(runs) for each in _forecasts(run, runs)]
    alike = [(_off(other, {}), after) for run, other, after in pairs if _is_alike(run, other)]
    errors = [_signed(run, {}) for run in runs]
    return Taught(
        len(runs),
        median(map(abs, errors)),
        min(median(abs(each - shift) for each in errors) for shift in errors),
        median(after for _, _, after in pairs),
        median(judged(runs, 2)),
        len(alike),
        median(plain for plain, _ in alike) if alike else 0.0,
        median(after for _, after in alike) if alike else 0.0,
    )


def _forecasts(run: Ran, runs: Sequence[Ran]) -> Iterator[tuple[Ran, float]]:
    """The errors of a cluster's other runs, once this one is known."""
    others = [other for other in runs if other is not run]
    yield from zip(others, _judged_by((run,), others), strict=True)


def _judged_by(known: Sequence[Ran], others: Sequence[Ran]) -> Iterator[float]:
    """The errors of runs whose forecasts rest on those that are known."""
    learnt = factors(known)
    steps = [each.seconds for each in known if each.seconds is not None]
    seen = [Seen(each.accounted, _signed_of(each, learnt)) for each in steps]
    for run in others:
        assert run.seconds is not None
        yield abs(_signed(run, learnt) - log(expected(run.seconds.accounted, seen)))


def judged(runs: Sequence[Ran], teachers: int) -> list[float]:
    """Errors of a cluster's other runs, once so many of its runs are known."""
    found: list[float] = []
    for known in islice(combinations(_spread(runs), teachers), _MOST):
        found += _judged_by(known, [run for run in runs if run not in known])
    return found


def _spread(runs: Sequence[Ran]) -> Sequence[Ran]:
    """At most `_TEACHERS` runs, spread evenly over the cluster."""
    return runs[:: ceil(len(runs) / _TEACHERS)]


def _is_alike(one: Ran, other: Ran) -> bool:
    assert one.seconds is not None
    assert other.seconds is not None
    return apart(one.seconds.accounted, other.seconds.accounted) < ALIKE


def _off(run: Ran, learnt: Mapping[Resource, float]) -> float:
    return abs(_signed(run, learnt))


def _signed(run: Ran, learnt: Mapping[Resource, float]) -> float:
    assert run.seconds is not None
    return _signed_of(run.seconds, learnt)


def _signed_of(seconds: Seconds, learnt: Mapping[Resource, float]) -> float:
    return off(equation_of(seconds.accounted, seconds.measured), learnt)


def clusters() -> dict[str, Taught]:
    """What each cluster's runs teach about each other, of clusters with a few runs."""
    found: dict[str, list[Ran]] = {}
    for run in runs():
        found.setdefault(cluster(run), []).append(_ran(run))
    return {name: taught(each) for name, each in found.items() if len(each) >= _FEW}


def table() -> list[str]:
    """The table of the README, with the means of all clusters."""
    every = clusters()
    lines = [*_HEADING, *(_line(name, each) for name, each in every.items())]
    means = [round(fmean(column), 3) for column in zip(*every.values(), strict=True)]
    near = [each for each in every.values() if each.alike > 1]
    alike = (fmean(column) for column in zip(*(each[6:] for each in near), strict=True))
    figures = " | ".join(f"{each:.3f}" for each in means[1:5])
    halved = f"{sum(each.is_halved for each in near)} of {len(near)}"
    ends = " | ".join(f"{each:.3f}" for each in alike)
    return [*lines, f"| mean | | {figures} | | {ends} | {halved} |"]


_HEADING: Final = (
    (
        "| cluster | runs | error | best constant | after one run | after two | pairs alike "
        "| their error | after one run | halved |"
    ),
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | :---: |",
)
_FEW: Final = 3
_TEACHERS: Final = 40
_MOST: Final = 800


def _line(name: str, of: Taught) -> str:
    figures = " | ".join(f"{each:.3f}" for each in (of.plain, of.best, of.one, of.two))
    if of.alike < 2:
        return f"| {name} | {of.runs} | {figures} | {of.alike} | | | |"
    near = f"{of.plain_of_alike:.3f} | {of.one_of_alike:.3f} | {'yes' if of.is_halved else 'no'}"
    return f"| {name} | {of.runs} | {figures} | {of.alike} | {near} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python benchmarks/calibrate.py")
    parser.add_argument("--write", action="store_true", help="renew the table in the README")
    options = parser.parse_args()
    lines = table()
    print("\n".join(lines))
    if options.write:
        head, _, rest = README.read_text().partition(_START)
        _, _, tail = rest.partition(_END)
        README.write_text("\n".join([f"{head}{_START}", "", *lines, "", f"{_END}{tail}"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
