"""running: the ranks' processes, from a folder with the files to one report for each rank."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tunec.compiler.rehearse import keeper

Progress = Callable[[str], None]

SECONDS: Final = 300.0
"""How long a rehearsal may take unless told otherwise; importing the libraries takes most of it."""

_OF_A_RUN: Final = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK"),
    *("MASTER_ADDR", "MASTER_PORT", "LOCAL_SIZE"),
)
_QUIET: Final[Mapping[str, str]] = {
    "DEEPSPEED_LOG_LEVEL": "error",
    "DS_SKIP_CUDA_CHECK": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONIOENCODING": "utf-8",
    "PYTHONWARNINGS": "ignore",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
}
_CPU: Final[Mapping[str, str]] = {"CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu"}
_CACHES: Final = ("TMPDIR", "HF_HOME", "XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR")
"""Variables that say where libraries write: all of it goes into the folder."""


class RehearsalFailed(Exception):
    """The run raised, ended without a report, or took too long; `output` is what it printed."""

    def __init__(self, reason: str, output: str = "") -> None:
        super().__init__(reason)
        self.output = output


@dataclass(frozen=True, slots=True)
class Job:
    """One run: its files by name, what each rank is asked, and how the ranks are started."""

    files: Mapping[str, str]
    question: Mapping[str, Any]
    launcher: Sequence[str]
    """A Python module and its flags up to `-m`; empty: one rank without a launcher."""
    environment: Mapping[str, str]
    python: str = sys.executable
    """What the ranks run with; it reaches the packages of the running interpreter."""


def run(job: Job, progress: Progress, seconds: float = SECONDS) -> list[dict[str, Any]]:
    """Run a job to its end; return each rank's report, in order.

    Nothing outlives the call, whatever ends it: not a process, not a file. Raises RehearsalFailed.
    """
    with _folder() as folder:
        work = folder / "work"
        work.mkdir()
        for name, text in job.files.items():
            (work / name).write_text(text, encoding="utf-8")
        (folder / "question.json").write_text(json.dumps(job.question), encoding="utf-8")
        status = _wait(_command(job, folder), _environment(job, folder), folder, progress, seconds)
        return _reports(folder, status, seconds)


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tunec-rehearse-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def _command(job: Job, folder: Path) -> list[str]:
    kept = [sys.executable, "-m", keeper.__name__, str(folder)]
    return [
        *kept,
        job.python,
        "-m",
        *job.launcher,
        "tunec.compiler.rehearse.live.rank",
        str(folder),
    ]


def _environment(job: Job, folder: Path) -> dict[str, str]:
    around = {name: value for name, value in os.environ.items() if name not in _OF_A_RUN}
    device = _CPU if job.question["device"] == "cpu" else {}
    caches = dict.fromkeys(_CACHES, str(folder))
    return {**around, **job.environment, **_QUIET, **device, **caches, **_path(around)}


def _path(around: Mapping[str, str]) -> dict[str, str]:
    """Where tunec itself is found, also by a Python that only borrows this one's packages."""
    root = str(Path(keeper.__file__).parents[3])
    known = around.get("PYTHONPATH")
    return {"PYTHONPATH": root if known is None else f"{root}{os.pathsep}{known}"}


def _wait(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    progress: Progress,
    seconds: float,
) -> int | None:
    """The exit status, or None where time ran out."""
    process = subprocess.Popen(  # noqa: S603
        command, stdin=subprocess.PIPE, env=environment, start_new_session=True
    )
    try:
        return _follow(process, folder, progress, time.monotonic() + seconds)
    finally:
        with suppress(BrokenPipeError):
            process.communicate(keeper.DONE)


def _follow(
    process: subprocess.Popen[bytes], folder: Path, progress: Progress, until: float
) -> int | None:
    told = 0
    while time.monotonic() < until:
        lines = _lines(folder / "progress.txt")
        for line in lines[told:]:
            progress(line)
        told = len(lines)
        with suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=0.2)
    return None


def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines() if path.exists() else []


def _reports(folder: Path, status: int | None, seconds: float) -> list[dict[str, Any]]:
    output = folder / "output.txt"
    said = output.read_text("utf-8", "replace")[-4000:] if output.exists() else ""
    if status is None:
        raise RehearsalFailed(f"it took over {seconds:.0f} s", said)
    told = sorted(folder.glob("rank-*.json"))
    found = [json.loads(path.read_text("utf-8")) for path in told]
    faults = [
        (path.stat().st_mtime, each["fault"])
        for path, each in zip(told, found, strict=True)
        if "fault" in each
    ]
    if faults:  # the others fail of the first one's end
        raise RehearsalFailed(f"the run raised {min(faults)[1]}", said)
    if not found or status != 0:
        raise RehearsalFailed(f"the launcher ended with status {status}", said)
    return found
