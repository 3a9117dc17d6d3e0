"""Whether a cluster of a given shape would accept a script, by sbatch.

A controller of Slurm is started on the loopback address for the question, with nodes that exist
only in its configuration, and is stopped after it. `--test-only` queues nothing.
"""

import getpass
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

Answer = dict[str, Any]

_SECONDS: Final = 30.0
_PAUSE: Final = 0.2
_UNREACHABLE: Final = "Unable to contact slurm controller"
_SEEN: Final = re.compile(r"^sbatch: ([a-z][a-z-]*)\s+: (.+)$", re.MULTILINE)

# slurm.conf manual page of Slurm 22.05. Nodes in state CLOUD need no daemon to be scheduled on.
_CONF: Final = """\
ClusterName=asked
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
SlurmctldPort={port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SuspendProgram={true}
ResumeProgram={true}
SuspendTime=3600
GresTypes=gpu
NodeName={names} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory} Gres=gpu:{gpus} State=CLOUD
PartitionName=asked Nodes=ALL Default=YES State=UP MaxTime=INFINITE
"""


def submit(question: Mapping[str, Any]) -> Answer:
    """sbatch's answer for `text` on `nodes` nodes with `gpus`, `cpus` and `memory` (MiB) each."""
    for name in ("sbatch", "slurmctld"):
        if shutil.which(name) is None:
            raise FileNotFoundError(f"there is no {name} on this machine")
    with tempfile.TemporaryDirectory(prefix="slurm-") as held, _controller(Path(held), question):
        script = Path(held, "train.sbatch")
        script.write_text(question["text"], encoding="utf-8")
        command = ["sbatch", "-vv", "--test-only", str(script)]
        done = _run(command, held)
        end = time.monotonic() + _SECONDS
        while _UNREACHABLE in done.stderr and time.monotonic() < end:
            time.sleep(_PAUSE)
            done = _run(command, held)
        if _UNREACHABLE in done.stderr:
            raise RuntimeError(Path(held, "slurmctld.log").read_text("utf-8")[-1000:])
        version = _run(["sbatch", "--version"], held).stdout.split()[-1]
    options = {name.replace("-", "_"): value.strip() for name, value in _SEEN.findall(done.stderr)}
    return {
        "version": version,
        "values": options,
        "refused": _complaint(done.stderr) if done.returncode else None,
    }


def _complaint(text: str) -> str:
    said = [line for line in text.splitlines() if line and not line.startswith("sbatch: debug")]
    told = [line for line in said if _SEEN.match(line) is None]
    marks = ("error", "failure", "unrecognized", "invalid")
    named = [line for line in told if any(mark in line.lower() for mark in marks)]
    return (named or told or ["sbatch said nothing"])[0]


def _run(command: list[str], folder: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603
        command,
        env={**_clean(), "SLURM_CONF": f"{folder}/slurm.conf"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )


def _clean() -> dict[str, str]:
    """The environment without variables that are options of sbatch."""
    marks = ("SBATCH_", "SLURM_")
    return {name: value for name, value in os.environ.items() if not name.startswith(marks)}


@contextmanager
def _controller(folder: Path, question: Mapping[str, Any]) -> Iterator[None]:
    (folder / "state").mkdir()
    count = question["nodes"]
    names = "node0" if count == 1 else f"node[0-{count - 1}]"
    text = _CONF.format(
        host=socket.gethostname().partition(".")[0],
        user=getpass.getuser(),
        port=_free_port(),
        folder=folder,
        true=shutil.which("true"),
        names=names,
        **{name: question[name] for name in ("cpus", "memory", "gpus")},
    )
    (folder / "slurm.conf").write_text(text, encoding="utf-8")
    gres = f"NodeName={names} Name=gpu Count={question['gpus']}\n"
    (folder / "gres.conf").write_text(gres, encoding="utf-8")
    with subprocess.Popen(
        ["slurmctld", "-D", "-i"],  # noqa: S607
        env={**_clean(), "SLURM_CONF": str(folder / "slurm.conf")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as running:
        try:
            yield
        finally:
            running.kill()


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port
