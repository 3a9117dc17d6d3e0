"""Leave one out: what one run on a cluster teaches the time account about its other runs.

A cluster here is a number of devices of one source: the same machine, script and season. From each
published step time alone the factors are worked out as `tunec calibrate` does, and the other step
times of that cluster are judged by them. `--write` renews the table in benchmarks/README.md.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Final

from tunec.compiler.calibrate.attribution import equation as equation_of
from tunec.compiler.calibrate.attribution import factors, off
from tunec.schemas.hardware.measurements import Ran, Seconds

ROOT: Final = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests/analyses" / name) for name in ("time", "memory")]
from measured_runs import Run, runs  # type: ignore[import-not-found]  # noqa: E402

README: Final = Path(__file__).with_name("README.md")
_START: Final = "<!-- leave one out: begin -->"
_END: Final = "<!-- leave one out: end -->"


def cluster(run: Run) -> str:
    """A number of devices of one source."""
    devices = run.layout.parallel.world // run.layout.nodes
    nodes = f"{run.layout.nodes} nodes of " if run.layout.nodes > 1 else ""
    return f"{run.source}, {nodes}{devices} {run.row['device']}"


def _ran(run: Run) -> Ran:
    found = Seconds(measured=run.seconds, steps=1, accounted=run.account.terms)
    devices = run.layout.parallel.world
    about = {"name": cluster(run), "when": "", "files": (), "digest": "", "tunec": ""}
    return Ran.model_validate({**about, "devices": devices, "seconds": found})


def judged(runs: Sequence[Ran]) -> tuple[list[float], list[float]]:
    """Errors of every other run of a cluster, without factors and by those of one run alone."""
    before, after = [], []
    for teacher in runs:
        learnt = factors([teacher])
        for other in runs:
            if other is not teacher and other.seconds is not None:
                equation = equation_of(other.seconds.accounted, other.seconds.measured)
                before.append(abs(off(equation, {})))
                after.append(abs(off(equation, learnt)))
    return before, after


def table() -> list[str]:
    by_cluster: dict[str, list[Ran]] = {}
    for run in runs():
        by_cluster.setdefault(cluster(run), []).append(_ran(run))
    lines = [
        "| cluster | runs | error of the account | after one other run | halved |",
        "| --- | ---: | ---: | ---: | :---: |",
    ]
    every: list[tuple[int, list[float], list[float]]] = []
    for name, found in by_cluster.items():
        if len(found) < _FEW:
            continue
        every.append((len(found), *judged(found)))
        lines.append(_line(name, *every[-1]))
    far = [each for each in every if median(each[1]) > _FAR]
    means = ([fmean(median(each[at]) for each in far)] for at in (1, 2))  # type: ignore[arg-type]
    number = sum(runs for runs, _, _ in far)
    lines.append(_line(f"mean of the {len(far)} that are off by more than {_FAR}", number, *means))
    return lines


_FAR: Final = 0.1
_FEW: Final = 3


def _line(name: str, runs: int, before: Sequence[float], after: Sequence[float]) -> str:
    first, second = median(before), median(after)
    halved = "yes" if second <= first / 2 else "no"
    return f"| {name} | {runs} | {first:.3f} | {second:.3f} | {halved} |"


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
