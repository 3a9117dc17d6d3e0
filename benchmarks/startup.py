"""The cost of a cold `tunec compile`, as a ratio to the import of the libraries that it uses.

Runs of both alternate, so that a busy machine slows both; medians of wall time and of CPU time.
Only the ratio can be compared between machines.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SPEC = "examples/minicpm-v-2_6-lora/spec.yaml"
COMPILE = ["-m", "tunec", "compile", SPEC, "--target", "deepspeed"]
LIBRARIES = ["-c", "import pydantic, omegaconf, jsonschema"]


class Cost(NamedTuple):
    """Seconds of one run."""

    wall: float
    cpu: float


def run(arguments: list[str]) -> Cost:
    # byte code is cached, as it is wherever tunec is installed
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, *arguments]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall, cpu)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python benchmarks/startup.py")
    parser.add_argument("--runs", type=int, default=21, help="of each, alternating")
    parser.add_argument("--most", type=float, help="fail if the ratio of CPU times is above this")
    options = parser.parse_args()
    run(COMPILE), run(LIBRARIES)
    costs = [(run(COMPILE), run(LIBRARIES)) for _ in range(options.runs)]
    ratio = 0.0
    for name in Cost._fields:
        ours = median(getattr(compiled, name) for compiled, _ in costs)
        theirs = median(getattr(imported, name) for _, imported in costs)
        ratio = ours / theirs
        print(f"{name}: compile {ours * 1e3:.0f} ms, libraries {theirs * 1e3:.0f} ms: {ratio:.2f}")
    return 1 if options.most is not None and ratio > options.most else 0


if __name__ == "__main__":
    sys.exit(main())
