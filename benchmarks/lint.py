"""Cold lint of a pair of files, files a second over a folder of configs, and one folder by size.

    python benchmarks/lint.py [FOLDER]

The pair is written to a folder of its own and linted in a new process each time; the files of
FOLDER (any tree of configs) are linted one by one in this process. One folder of 75 and of 301
files is linted as one: arguments that share a file for DeepSpeed, alone, or beside twice as many
files that nobody knows. What four times as many cost against the fewer is a ratio that can be
compared between machines: 4 is what each file costs by itself.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

RUNS = 7
FOLDERS = (75, 301)
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
    """Seconds to import every rule, after the modules on which rules depend."""
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
    """Lint each file of a tree, and print the files per second."""
    import tunec

    files = [each for each in sorted(folder.rglob("*")) if each.suffix in ENDINGS]
    took = seconds(lambda: [tunec.lint(each) for each in files])
    print(f"{len(files)} files in {took:.1f} s: {len(files) / took:.0f} a second")


def one_folder(count: int, strangers: int) -> float:
    """Processor seconds to lint a folder: arguments for one engine, and files of no program."""
    from tunec.compiler.lints.lint import lint_files
    from tunec.targets.registry import TARGETS

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "ds.json").write_text(DS, "utf-8")
        for at in range(count - 1 - strangers):
            (folder / f"args_{at}.yaml").write_text(f"{ARGS}max_steps: {at + 1}\n", "utf-8")
        for at in range(strangers):
            (folder / f"chart_{at}.yaml").write_text("image: a\nports: [1, 2]\n", "utf-8")
        start = time.process_time()
        lint_files([folder], TARGETS.readable())
        return time.process_time() - start


def folders() -> None:
    """Print the cost of one folder by its size, with and without files of no known program."""
    few, many = FOLDERS
    one_folder(few, few // 3)  # rules are imported
    for what, share in (("arguments alone", 0.0), ("two thirds are nobody's", 2 / 3)):
        took = {count: one_folder(count, int(count * share)) for count in FOLDERS}
        grown = f"{took[many] / took[few]:.1f} times that of {few}"
        print(f"a folder of {many} files, {what}: {took[many]:.2f} s, {grown}")


def main() -> None:
    """Print every measure."""
    times = cold_pair()
    print(f"cold lint of a pair: median {statistics.median(times):.2f} s, worst {max(times):.2f} s")
    rules_import()
    folders()
    if len(sys.argv) > 1:
        over(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
