"""`tunec choose` of one spec on the whole catalogue, as a command: start, plans, picture and page.

The median of several cold runs, by the clock and by the processor.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
SPECS = ("five-lines", "llama-3.1-8b-dpo", "minicpm-v-2_6-lora", "simpletuner-sdxl-lora")


def once(spec: Path, folder: Path) -> tuple[float, float]:
    """Wall clock seconds and processor seconds of one run."""
    command = [sys.executable, "-m", "tunec", "choose", str(spec), "-o", str(folder / "page.html")]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if "prices of " not in done.stdout:
        raise SystemExit(done.stderr)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(prog="python benchmarks/choose.py")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--most", type=float, help="fail if one takes more seconds of a processor")
    options = parser.parse_args()
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for name in SPECS:
            runs = [
                once(ROOT / f"examples/{name}/spec.yaml", Path(folder)) for _ in range(options.runs)
            ]
            clock, processor = (median(column) for column in zip(*runs, strict=True))
            worst = max(worst, processor)
            print(f"{name:<24} {clock:.2f} s of the clock, {processor:.2f} s of a processor")
    return 1 if options.most is not None and worst > options.most else 0


if __name__ == "__main__":
    sys.exit(main())
