"""Cold lint of a pair of files, and files a second over a folder of configs.

    python benchmarks/lint.py [FOLDER]

The pair is written to a folder of its own and linted in a new process each time; the files of
FOLDER (any tree of configs) are linted one by one in this process.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

RUNS = 7
DS = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}'
ARGS = "output_dir: out\nper_device_train_batch_size: 2\nbf16: true\n"
ENDINGS = (".json", ".yaml", ".yml", ".toml", ".sh", ".env")


def seconds(work: Callable[[], object]) -> float:
    """Wall clock time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def cold_pair() -> list[float]:
    """Seconds of `tunec lint` on two files with --hardware, each in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, "ds_config.json"), Path(folder, "args.yaml")]
        for file, text in zip(files, (DS, ARGS), strict=True):
            file.write_text(text, "utf-8")
        command = [sys.executable, "-m", "tunec", "lint", *map(str, files), "--hardware", "p100-x1"]
        return [
            seconds(lambda: subprocess.run(command, capture_output=True, check=False))
            for _ in range(RUNS)
        ]


def rules_import() -> float:
    """Seconds to import every rule, after what they build on."""
    code = (
        "import time; from tunec.compiler.lints import lint, index; t = time.perf_counter(); n = "
        "len(list(index.rules())); print(n, time.perf_counter() - t)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    number, took = done.stdout.split()
    print(f"{number} rules are imported in {float(took) * 1000:.0f} ms")
    return float(took)


def over(folder: Path) -> None:
    """Lint each file of a tree, and print how many a second."""
    import tunec

    files = [each for each in sorted(folder.rglob("*")) if each.suffix in ENDINGS]
    took = seconds(lambda: [tunec.lint(each) for each in files])
    print(f"{len(files)} files in {took:.1f} s: {len(files) / took:.0f} a second")


def main() -> None:
    """Print both measures."""
    times = cold_pair()
    print(f"cold lint of a pair: median {statistics.median(times):.2f} s, worst {max(times):.2f} s")
    rules_import()
    if len(sys.argv) > 1:
        over(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
