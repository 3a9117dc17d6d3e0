"""A generated fleet: how fast it is built, how fast when nothing changed, how much memory it takes.

`--specs` and `--clusters` give its size (`--specs 100 --clusters 1000` is what this is for).
The times are of this machine; where other work shares it, compare the time of the processors. What
counts is the shape: cost linear in the pairs, memory flat, a run without change far below a build.
"""

import argparse
import itertools
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tunec.schemas.hardware.catalogue import cluster_names, device_names

_MODELS: Final = (
    *("llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b", "qwen2.5-7b", "mistral-7b-v0.1"),
    *("gemma-2-2b", "phi-4", "qwen3-4b", "qwen2.5-14b", "llama-2-13b"),
)
_METHODS: Final = ("lora", "qlora")
_SEQUENCES: Final = (512, 1024, 2048, 4096, 8192)


def write_specs(folder: Path, count: int) -> None:
    folder.mkdir()
    kinds = itertools.product(_SEQUENCES, _METHODS, _MODELS)
    for at, (sequence, method, model) in enumerate(itertools.islice(kinds, count)):
        (folder / f"spec-{at:03}.yaml").write_text(
            f"tunec: 1\nmodel: {model}\nmethod: {method}\nhardware: a100-80g-x8\n"
            f"data: {{train: train.jsonl, samples: 10000, sequence: {sequence}}}\n"
            "batch: {global: 64}\ntrain: {epochs: 1}\n",
            "utf-8",
        )


def clusters() -> Iterator[str]:
    yield from cluster_names()
    for count, nodes in itertools.product((8, 4, 2, 1), (1, 2, 4, 8, 16)):
        suffix = f"-n{nodes}" if nodes > 1 else ""
        yield from (f"{name}-x{count}{suffix}" for name in device_names())


@dataclass(frozen=True, slots=True)
class RunCost:
    """The time and memory of a run."""

    seconds: float
    """Wall clock time."""
    processor_seconds: float
    """Processor time of all its processes together."""
    most_bytes: int
    """The largest resident memory of any process so far."""


_TICKS: Final = os.sysconf("SC_CLK_TCK")
_EVERY: Final = 10_000
"""The number of pairs after which a line reports the build's progress."""


def run(folder: Path, jobs: int) -> RunCost:
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "tunec", "fleet", "fleet.yaml", "-o", "build", "-j", str(jobs)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--format", "csv"], cwd=folder, stdout=log, stderr=log
        )
        _follow(process, folder / "build")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return RunCost(time.perf_counter() - start, processor, after.ru_maxrss * 1024)


def _follow(process: "subprocess.Popen[bytes]", tree: Path) -> None:
    """Print the cost of a build whenever `_EVERY` more pairs are in the parts of its lock."""
    done, told = 0, 0
    read: dict[Path, int] = {}
    while process.poll() is None:
        time.sleep(0.5)
        for part in tree.glob("tunec.lock.part*"):
            try:
                with part.open("rb") as stream:
                    stream.seek(read.get(part, 0))
                    new = stream.read()
            except FileNotFoundError:
                continue  # all of it is in the lock now
            read[part], done = read.get(part, 0) + len(new), done + new.count(b"\n")
        if done // _EVERY > told:
            told = done // _EVERY
            seconds, memory = _of_processes(process.pid)
            sizes = ", ".join(f"{size >> 20}" for size in memory)
            each = 1000 * seconds / done
            print(f"  {done:,} pairs: {each:.2f} ms of processors each; {sizes} MiB", flush=True)


def _of_processes(parent: int) -> tuple[float, list[int]]:
    """Processor seconds of a process and its children together, and the memory of each (Linux)."""
    seconds, memory = 0.0, []
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text("ascii").split()
    for pid in (str(parent), *children):
        told = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(") ")[2].split()
        seconds += (int(told[11]) + int(told[12])) / _TICKS
        memory.append(int(told[21]) * resource.getpagesize())
    return seconds, memory


def main() -> int:
    parser = argparse.ArgumentParser(prog="python benchmarks/fleet.py")
    parser.add_argument("--specs", type=int, default=10)
    parser.add_argument("--clusters", type=int, default=200)
    parser.add_argument("--targets", default="deepspeed, huggingface")
    parser.add_argument("--folder", help="where to build; the system's own if not given")
    parser.add_argument("-j", "--jobs", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        write_specs(folder / "specs", options.specs)
        names = list(dict.fromkeys(clusters()))[: options.clusters]
        (folder / "fleet.yaml").write_text(
            f"fleet: 1\nspecs: specs/*.yaml\nclusters: [{', '.join(names)}]\n"
            f"targets: [{options.targets}]\n",
            "utf-8",
        )
        pairs = options.specs * len(names)
        for what in ("built", "unchanged"):
            found = run(folder, options.jobs)
            print(
                f"{what}: {pairs:,} pairs in {found.seconds:.1f} s, "
                f"{pairs / found.seconds:,.0f}/s; "
                f"{found.processor_seconds:.1f} s of processors, "
                f"{pairs / found.processor_seconds:,.0f}/s; {found.most_bytes >> 20} MiB; "
                f"load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
