"""Plans per second in one process: one spec, read once, on every nameable cluster.

A cluster counts as planned whether or not the spec fits it; repairs are not searched for, as in a
fleet. CPU time is measured, which other processes on the machine do not change; garbage is
collected as the command line does it.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tunec.compiler.cli.main import collect_seldom
from tunec.compiler.driver import Planned, plan
from tunec.compiler.frontend.load import Loaded, load_spec
from tunec.compiler.passes.fit.search import search
from tunec.schemas.caches import sizes
from tunec.schemas.frozen import replace
from tunec.schemas.hardware.catalogue import cluster, cluster_names, device_names

ROOT = Path(__file__).resolve().parent.parent
SPEC = ROOT / "examples/five-lines/spec.yaml"


def clusters() -> Iterator[str]:
    yield from cluster_names()
    for count in range(1, 9):
        yield from (f"{name}-x{count}" for name in device_names())
    for nodes in (2, 4, 8, 16):
        yield from (f"{name}-x8-n{nodes}" for name in device_names())


def plan_on(loaded: Loaded, hardware: str) -> Planned:
    assert loaded.spec is not None
    spec = loaded.spec.model_copy(update={"hardware": hardware})
    return plan(replace(loaded, spec=spec), repairing=False)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python benchmarks/throughput.py")
    parser.add_argument("--least", type=float, help="fail if there are fewer plans per second")
    options = parser.parse_args()
    names = list(dict.fromkeys(clusters()))
    for name in names:
        cluster(name)  # reading the catalogue is not planning
    loaded = load_spec(SPEC)
    plan(loaded)
    search.cache_clear()
    collect_seldom()
    start = time.process_time()
    planned = [plan_on(loaded, name) for name in names]
    seconds = time.process_time() - start
    fitting = sum(each.plan is not None for each in planned)
    rate = len(planned) / seconds
    print(f"{len(planned)} clusters, {fitting} fit, {seconds:.2f} s of CPU: {rate:,.0f} plans/s")
    largest = sorted(sizes().items(), key=lambda each: -each[1])[:5]
    print("largest caches:", ", ".join(f"{size:,} {name}" for name, size in largest))
    return 1 if options.least is not None and rate < options.least else 0


if __name__ == "__main__":
    sys.exit(main())
