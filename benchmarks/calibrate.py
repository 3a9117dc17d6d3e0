"""Leave one out: what one run on a cluster teaches the time account about its other runs.

A cluster here is a number of devices of one source: the same machine, script and season. From each
published step time alone the factors are worked out as `tunec calibrate` does, and the other step
times of that cluster are judged by them. `--write` renews the table in benchmarks/README.md.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from itertools import combinations, islice
from math import ceil
from pathlib import Path
from statistics import fmean, median
from typing import Final

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


def judged(runs: Sequence[Ran], teachers: int) -> list[float]:
    """Errors of a cluster's other runs, by factors from `teachers` of its runs."""
    found = []
    for taught in islice(combinations(_spread(runs), teachers), _MOST):
        learnt = factors(taught)
        found += [_error(run, learnt) for run in runs if run not in taught]
    return found


def _spread(runs: Sequence[Ran]) -> Sequence[Ran]:
    """At most `_TEACHERS` runs, spread evenly over the cluster."""
    return runs[:: ceil(len(runs) / _TEACHERS)]


def _error(run: Ran, learnt: Mapping[Resource, float]) -> float:
    assert run.seconds is not None
    return abs(off(equation_of(run.seconds.accounted, run.seconds.measured), learnt))


def table() -> list[str]:
    by_cluster: dict[str, list[Ran]] = {}
    for run in runs():
        by_cluster.setdefault(cluster(run), []).append(_ran(run))
    lines = [
        "| cluster | runs | error of the account | after one other run | halved | after two |",
        "| --- | ---: | ---: | ---: | :---: | ---: |",
    ]
    every: list[tuple[int, list[float]]] = []
    for name, found in by_cluster.items():
        if len(found) >= _FEW:
            every.append((len(found), [median(judged(found, count)) for count in range(3)]))
            lines.append(_line(name, *every[-1]))
    far = [errors for _, errors in every if errors[0] > _FAR]
    number = sum(runs for runs, errors in every if errors[0] > _FAR)
    means = [fmean(column) for column in zip(*far, strict=True)]
    lines.append(_line(f"mean of the {len(far)} that are off by more than {_FAR}", number, means))
    return lines


_FAR: Final = 0.1
_FEW: Final = 3
_TEACHERS: Final = 40
_MOST: Final = 800


def _line(name: str, runs: int, errors: Sequence[float]) -> str:
    first, second, third = errors
    halved = "yes" if second <= first / 2 else "no"
    return f"| {name} | {runs} | {first:.3f} | {second:.3f} | {halved} | {third:.3f} |"


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
