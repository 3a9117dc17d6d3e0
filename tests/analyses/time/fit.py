"""Fit the constants of the time account to the fitting half, and show how far off both halves are.

`python tests/analyses/time/fit.py` prints the constants that it finds; they are written into
`compiler/analyses/time/coefficients.py` and, of devices, into `machine.py` by hand, rounded. The
sum that is made small: absolute errors, in which a source counts by the root of its rows, so that
216 rows of one table do not drown the rest. Each constant is moved in turn by shrinking shares.
"""

import sys
from collections import Counter
from collections.abc import Mapping
from math import log, sqrt
from pathlib import Path
from statistics import fmean, median
from typing import Final

HERE: Final = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "memory"), str(HERE.parents[2])]
from judging import judged  # noqa: E402
from measured_runs import Run, Split, runs  # noqa: E402

from tunec.compiler.analyses.time.account import step_time  # noqa: E402
from tunec.compiler.analyses.time.coefficients import Constants  # noqa: E402
from tunec.schemas.frozen import replace  # noqa: E402

SHARED: Final = tuple(Constants.__struct_fields__)
DEVICES: Final = {
    "t4": {"reached": "t4"},
    "v100-sxm2-32g": {"reached": "v100-sxm2-32g"},
    "l40": {"reached": "l40"},
    "a100-sxm4-80g": {"attention": "a100 attention"},
}
"""Of devices, what is fitted by itself: fields of the machine."""
EXPECTED: Final[dict[str, float]] = {
    "sustained": 0.9,
    "crossings": 1.0,
    "traffic": 2.5,
    "fused": 0.5,
    "adapter": 4.0,
    "expansion": 50,
    "single": 0.5,
    "adam": 0.45,
    "kernel": 20e-6,
    "gather": 400e-6,
    "hook": 75e-6,
    "unit": 400e-6,
    "overlap": 4.0,
    "t4": 0.4,
    "v100-sxm2-32g": 0.7,
    "l40": 1.2,
    "a100 attention": 0.6,
}
"""What each would be by what it stands for, before any run is looked at."""
PRIOR: Final = 0.5
"""Weight of the squared logarithms by which a constant leaves that."""
HELD: Final = ("crossings", "overlap")
"""Constants that no run of the half tells apart from others, and that stay as expected."""
Point = Mapping[str, float]


def error(run: Run, at: Point) -> float:
    """Of one run at a point."""
    constants = Constants(**{name: at[name] for name in SHARED})
    own = DEVICES.get(str(run.row["device"]), {})
    machine = replace(run.machine, **{field: at[name] for field, name in own.items()})
    found = step_time(run.workload, run.layout, machine, run.constants(constants))
    return log(found.step_seconds / run.seconds)


def of(split: Split) -> list[Run]:
    """The runs of one half."""
    return [run for run in runs() if run.split == split]


def loss(at: Point, fitted: list[Run]) -> float:
    """What is made small."""
    rows = Counter(run.source for run in fitted)
    away = sum(log(value / EXPECTED[name]) ** 2 for name, value in at.items())
    return PRIOR * away + sum(abs(error(run, at)) / sqrt(rows[run.source]) for run in fitted)


def fit(fitted: list[Run]) -> dict[str, float]:
    """The point with the smallest loss."""
    at = dict(EXPECTED)
    best, step = loss(at, fitted), 0.4
    while step > 0.002:
        better = False
        for name in [each for each in at if each not in HELD]:
            for factor in (1 + step, 1 / (1 + step)):
                tried = {**at, name: factor * at[name]}
                found = loss(tried, fitted)
                if found < best - 1e-5:
                    best, at, better = found, tried, True
        if not better:
            step /= 2
    return at


def main() -> None:
    """Print the fit and its errors."""
    found = fit(of("fit"))
    print({name: float(f"{value:.3g}") for name, value in found.items()})
    print("sum", round(loss(found, of("fit")), 3))
    for split in ("fit", "judge"):
        errors = {run: error(run, found) for run in of(split)}
        print(split, judged(list(errors.values())))
        for source in dict.fromkeys(run.source for run in errors):
            mine = [value for run, value in errors.items() if run.source == source]
            print(f"  {source:18} {len(mine):4} {median(map(abs, mine)):.3f} {median(mine):+.3f}")
    left_out(found)


RESOURCES: Final[dict[str, tuple[str, ...]]] = {
    "products": ("sustained", "single"),
    "memory": ("traffic", "fused", "adapter", "expansion"),
    "host": ("kernel", "gather", "hook", "unit"),
    "host memory": ("adam",),
}
"""Constants by what their terms wait for."""


def left_out(whole: Point) -> None:
    """What the priors of `tunec calibrate` rest on: each source by a fit to all others.

    Of a source, the median of its errors (how far off all of a cluster's runs are together) and
    their distance from it (what differs from run to run); of a resource, how far its constants
    move when a source is left out. Of what is off and of what moves, the root of the mean square.
    """
    fitted = of("fit")
    moved: dict[str, list[float]] = {name: [] for name in RESOURCES}
    together, apart = [], []
    for source in dict.fromkeys(run.source for run in fitted):
        mine = [run for run in fitted if run.source == source]
        at = fit([run for run in fitted if run.source != source])
        errors = [error(run, at) for run in mine]
        together.append(median(errors))
        apart.append(median(abs(each - together[-1]) for each in errors) if mine[1:] else 0.0)
        print(f"  without {source:18} {together[-1]:+.3f} {apart[-1]:.3f}")
        for name, constants in RESOURCES.items():
            moved[name] += [log(at[each] / whole[each]) ** 2 for each in constants]
    off = sqrt(fmean(each**2 for each in together))
    print("off together", round(off, 3), "apart", round(median(apart), 3))
    print("moved", {name: round(sqrt(fmean(far)), 2) for name, far in moved.items()})


if __name__ == "__main__":
    main()
