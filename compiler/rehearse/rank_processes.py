"""Runs the ranks' processes: from a folder with the files to a report of each rank."""

import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.consumers.fork_pool import CAN_FORK, Server, ServerGone
from tunec.compiler.rehearse import keeper

Progress = Callable[[str], None]

SECONDS: Final = 300.0
"""The default time limit of a rehearsal, most of which is for importing the libraries."""

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
    "TORCH_WARM_POOL": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
}
_CPU: Final[Mapping[str, str]] = {"CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu"}
_CACHES: Final = ("TMPDIR", "HF_HOME", "XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR")
"""Variables that set where libraries write; all of them point to the run's folder."""


_FORKED: Final = str(Path(keeper.__file__).parent / "live" / "torchrun.py")
_SERVERS: Final[dict[str, tuple[Mapping[str, str], Server]]] = {}
"""The server of each interpreter, with the variables in which it loads the libraries."""
_ONE_RUN: Final = threading.Lock()


class RehearsalFailed(Exception):
    """The run raised, ended without a report, or took too long; `output` is what it printed."""

    def __init__(self, reason: str, output: str = "") -> None:
        super().__init__(reason)
        self.output = output


class Job(Struct, frozen=True):
    """One run: its files by name, the question for each rank, and how the ranks are started."""

    files: Mapping[str, str]
    question: Mapping[str, Any]
    launcher: Sequence[str]
    """Flags of torchrun; if empty, a single rank runs without a launcher."""
    environment: Mapping[str, str]
    modules: Sequence[str]
    """Modules that every rank imports; missing ones are skipped."""
    python: str = sys.executable
    """The interpreter of the ranks; it can import the packages of the running interpreter."""


def run(job: Job, progress: Progress, seconds: float = SECONDS) -> list[dict[str, Any]]:
    """Run a job to its end; return each rank's report, in order.

    No process and no file outlives the call, however it ends. Raises RehearsalFailed.
    """
    with _folder() as folder:
        work = folder / "work"
        work.mkdir()
        for name, text in job.files.items():
            (work / name).write_text(text, encoding="utf-8")
        (folder / "question.json").write_text(json.dumps(job.question), encoding="utf-8")
        attend = _attend_forked if CAN_FORK and job.question["device"] == "cpu" else _attend_started
        status = attend(job, folder, progress, time.monotonic() + seconds)
        return _reports(folder, status, seconds)


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tunec-rehearse-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def _environment(job: Job, folder: Path | str) -> dict[str, str]:
    """The ranks' variables; libraries write into `folder`."""
    around = {name: value for name, value in os.environ.items() if name not in _OF_A_RUN}
    device = _CPU if job.question["device"] == "cpu" else {}
    caches = dict.fromkeys(_CACHES, str(folder))
    return {**around, **job.environment, **_QUIET, **device, **caches, **_path(around)}


def _path(around: Mapping[str, str]) -> dict[str, str]:
    """Variables that let the ranks import tunec, even if their Python only borrows our packages.

    Nothing is imported from the directory in which the ranks start.
    """
    root = str(Path(keeper.__file__).parents[3])
    known = around.get("PYTHONPATH")
    found = {"PYTHONPATH": root if known is None else f"{root}{os.pathsep}{known}"}
    return {**found, "PYTHONSAFEPATH": "1"}


@contextmanager
def _keeper(
    folder: Path, command: Sequence[str], environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """The process that guards the run; all others have ended when this context ends."""
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-P", "-m", keeper.__name__, str(folder), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(BrokenPipeError):
            process.communicate(keeper.DONE)


def _follow(
    ended: Callable[[float], int | None], folder: Path, progress: Progress, until: float
) -> int | None:
    """The result of `ended`, which is polled until the time `until`; None if time ran out."""
    told = 0
    while time.monotonic() < until:
        lines = _lines(folder / "progress.txt")
        for line in lines[told:]:
            progress(line)
        told = len(lines)
        if (status := ended(0.2)) is not None:
            return status
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


# ── each process started anew ────────────────────────────────────────────────────────────────────


def _attend_started(job: Job, folder: Path, progress: Progress, until: float) -> int | None:
    """The launcher's exit status; None if time ran out."""
    with _keeper(folder, _command(job, folder), _environment(job, folder)) as process:
        return _follow(partial(_ended, process), folder, progress, until)


def _command(job: Job, folder: Path) -> list[str]:
    launcher = ["-m", "torch.distributed.run", *job.launcher] if job.launcher else []
    rank = "tunec.compiler.rehearse.live.rank"
    return [job.python, *launcher, "-m", rank, str(folder)]


def _ended(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    with suppress(subprocess.TimeoutExpired):
        return process.wait(timeout=seconds)
    return None


# ── forked from a process that has imported the libraries ────────────────────────────────────────


def _attend_forked(job: Job, folder: Path, progress: Progress, until: float) -> int | None:
    """Like `_attend_started`, in a third of the time, as the libraries are imported only once.

    Only for a CPU: a process that has used a GPU cannot be forked (torch/cuda/__init__.py
    `_lazy_init`), and importing DeepSpeed may use one.
    """
    with _keeper(folder, (), _environment(job, folder)) as process, _server(job) as server:
        if process.stdout is None or process.stdout.readline() != keeper.KEPT:
            return process.wait()
        server.ask(_request(job, folder))
        begun = _follow(server.answer, folder, progress, until)
        status = None if begun is None else _follow(server.answer, folder, progress, until)
        if status is None:
            server.end()
        return status


def _request(job: Job, folder: Path) -> dict[str, Any]:
    output = folder / "output.txt"
    output.touch()
    return {
        "arguments": [_FORKED, str(folder), *job.launcher],
        "environment": _environment(job, folder),
        "folder": str(folder / "work"),
        "input": os.devnull,
        "output": str(output),
        "modules": list(job.modules),
    }


@contextmanager
def _server(job: Job) -> Iterator[Server]:
    """The server for one run, started again if the last one's variables were different.

    Libraries read some variables when they are imported. Their cache folder is given as `.`, the
    folder in which they run.
    """
    variables = {**_environment(job, "."), "TMPDIR": tempfile.gettempdir()}
    with _ONE_RUN:
        server = _serving(job.python, variables)
        try:
            yield server
        except ServerGone:
            raise RehearsalFailed("the process from which the ranks are forked has ended") from None
        except BaseException:
            server.end()
            raise


def _serving(python: str, variables: Mapping[str, str]) -> Server:
    known, server = _SERVERS.get(python, ({}, None))
    if server is not None and (known != variables or not server.lives):
        server.end()
        server = None
    if server is None:
        server = Server([python, "-P"], variables)
        _SERVERS[python] = variables, server
    return server


@atexit.register
def _end_servers() -> None:
    for _, server in _SERVERS.values():
        server.end()
