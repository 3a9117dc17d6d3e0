"""A spec compiled to a bundle, and the bundle's own entry started as it is."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tunec.compiler.consumers.environments import prepare

HERE: Final = Path(__file__).parent
_PROGRAMS: Final = (Path(sys.executable).parent, HERE / "programs")
_SECONDS: Final = 900
"""After which a run that hangs is ended; no run comes near it."""

ENVIRONMENT: Final[Mapping[str, str]] = {
    "DS_ACCELERATOR": "cpu",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONWARNINGS": "ignore",
    "SIMPLETUNER_LOG_LEVEL": "INFO",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "info",
}
"""What differs from a run on GPUs, besides what `cpu/sitecustomize.py` answers for them."""


Plan = Mapping[str, Any]
"""Slots with their values."""


@dataclass(frozen=True, slots=True)
class Journey:
    """What was planned, what was printed and what was left on the disk."""

    plan: Plan
    project: Path
    """The folder of the spec."""
    output: Path
    """Where the trainer saved."""
    log: str


def tunec(project: Path, *words: str) -> str:
    """What a command prints; fails with what it says where it does not end well."""
    command = [sys.executable, "-m", "tunec", *words]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def travel(project: Path, beside: Sequence[str] = ()) -> Journey:
    """Compile `spec.yaml` of a project to `out`, and run `out/run.sh` to its end.

    `beside` are pins of packages that the run finds before those of this interpreter. Raises
    EnvironmentUnavailable where they cannot be had.
    """
    tunec(project, "compile", "spec.yaml", "-o", "out")
    planned = json.loads(tunec(project, "plan", "spec.yaml", "--format", "json"))["plan"]
    libraries = [str(prepare(beside).packages)] if beside else []
    log = start(project, libraries=libraries)
    return Journey(planned, project, _output(planned, project), log)


def start(
    project: Path, *words: str, libraries: Sequence[str] = (), entry: str = "out/run.sh"
) -> str:
    """What the entry of a bundle prints to its end, with further words for its trainer."""
    path = os.pathsep.join([*map(str, _PROGRAMS), os.environ["PATH"]])
    found = [str(HERE / "cpu"), *libraries, os.environ.get("PYTHONPATH")]
    places = os.pathsep.join(filter(None, found))
    caches = {"HF_HOME": str(project / "cache"), "TMPDIR": str(project)}
    here = {"PATH": path, "PYTHONPATH": places, "MASTER_PORT": _free_port()}
    around = os.environ | ENVIRONMENT | caches | here
    done = subprocess.run(
        ["bash", str(project / entry), *words],
        cwd=project,
        env=around,
        text=True,
        timeout=_SECONDS,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


def _free_port() -> str:
    """A port of this run's own, beside whatever else the machine runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def _output(plan: Plan, project: Path) -> Path:
    """Where the plan has the trainer save; the run starts in the bundle's root."""
    return (project / "out" / plan["runtime.output"]).resolve()
