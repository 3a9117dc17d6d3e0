"""A cluster of Slurm on this machine: a real controller and two real daemons, on loopback.

Both nodes are this machine, under two addresses of its own, each with devices that are none: Slurm
counts device files, and never opens them. Nothing is authenticated, since nobody else can
reach it. Needs Debian's `slurm-wlm` (or any Slurm from 21.08 on) and root, as which slurmd starts
jobs; `.ci/run` installs it where it can.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random")
"""Character devices that every Linux has: the GPUs of each node."""
CPUS: Final = 64
MEMORY: Final = 256 * 1024
"""MiB of RAM that each node says it has."""
_SECONDS: Final = 60.0
_PAUSE: Final = 0.3
NODES: Final = ("127.0.0.1", "127.0.0.2")
"""Both are this machine, and are names that ranks can meet at, as they would on two machines."""
_PROGRAMS: Final = ("slurmctld", "slurmd", "sbatch", "srun", "scontrol", "sinfo")

# slurm.conf, gres.conf and cgroup.conf manual pages of Slurm 22.05
_CONF: Final = """\
ClusterName=here
SlurmctldHost={controller}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
SlurmctldPort={port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
ReturnToService=2
GresTypes=gpu
{nodes}
PartitionName=gpu Nodes=ALL Default=YES State=UP MaxTime=INFINITE
"""
_NODE: Final = (
    "NodeName={name} NodeHostname={controller} NodeAddr=127.0.0.1 Port={port} "
    f"CPUs={CPUS} RealMemory={MEMORY} Gres=gpu:{len(DEVICES)}"
)
_CGROUP: Final = "CgroupPlugin=cgroup/v1\nCgroupMountpoint={folder}/cgroup\nIgnoreSystemd=yes\n"
"""A plugin has to be there, and limits nothing here."""


class Unavailable(Exception):
    """There is no Slurm here, or it does not start; says why."""


@dataclass(frozen=True, slots=True)
class Slurm:
    """A running cluster, by the folder of its configuration."""

    folder: Path

    def run(self, *words: str, cwd: Path, seconds: float = _SECONDS) -> "Said":
        """A program of Slurm's, with what it writes."""
        done = subprocess.run(
            words,
            cwd=cwd,
            env=environment(self.folder),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    def submit(self, script: str, *arguments: str, cwd: Path, seconds: float) -> "Said":
        """`sbatch --wait` from a directory: back when the job has ended, with its own status."""
        return self.run("sbatch", "--wait", script, *arguments, cwd=cwd, seconds=seconds)


@dataclass(frozen=True, slots=True)
class Said:
    """How a program ended, and what it wrote."""

    status: int
    out: str
    err: str


def environment(folder: Path) -> dict[str, str]:
    """The variables without those that are options of Slurm's programs themselves."""
    marks = ("SBATCH_", "SLURM_", "SRUN_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(marks)}
    return {**kept, "SLURM_CONF": str(folder / "slurm.conf")}


@contextmanager
def cluster(folder: Path) -> Iterator[Slurm]:
    """A cluster with its files in a folder, ended with the context; or else Unavailable."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        raise Unavailable(f"there is no {missing[0]} on this machine (Debian: slurm-wlm)")
    if os.geteuid() != 0:
        raise Unavailable("slurmd starts jobs as root alone")
    _configure(folder)
    with ExitStack() as running:
        running.enter_context(_daemon(folder, "slurmctld", "-D", "-i"))
        for name in NODES:
            running.enter_context(_daemon(folder, "slurmd", "-D", "-N", name))
        found = Slurm(folder)
        _await_nodes(found, len(NODES))
        yield found


def _configure(folder: Path) -> None:
    controller, ports = socket.gethostname().partition(".")[0], free_ports(len(NODES) + 1)
    for name in ("state", "cgroup", *(f"spool-{each}" for each in NODES)):
        (folder / name).mkdir(parents=True)
    nodes = (
        _NODE.format(name=name, controller=controller, port=port)
        for name, port in zip(NODES, ports[1:], strict=True)
    )
    conf = _CONF.format(controller=controller, port=ports[0], folder=folder, nodes="\n".join(nodes))
    gres = (f"NodeName={','.join(NODES)} Name=gpu File={each}\n" for each in DEVICES)
    (folder / "slurm.conf").write_text(conf)
    (folder / "gres.conf").write_text("".join(gres))
    (folder / "cgroup.conf").write_text(_CGROUP.format(folder=folder))


@contextmanager
def _daemon(folder: Path, *words: str) -> Iterator[None]:
    log = folder / f"{words[0]}-{words[-1]}.log"
    with (
        log.open("w") as said,
        subprocess.Popen(words, env=environment(folder), stdout=said, stderr=said) as running,
    ):
        try:
            yield
        finally:
            running.terminate()
            try:
                running.wait(10)
            except subprocess.TimeoutExpired:
                running.kill()


def _await_nodes(slurm: Slurm, count: int) -> None:
    """Raises Unavailable with the daemons' last lines where the nodes do not come up."""
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        said = slurm.run("sinfo", "-h", "-N", "-o", "%T", cwd=slurm.folder)
        if said.out.split() == ["idle"] * count:
            return
        time.sleep(_PAUSE)
    logs = {each.name: each.read_text()[-500:] for each in slurm.folder.glob("slurm*.log")}
    raise Unavailable(f"the nodes do not come up: {said.out!r} {logs}")


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def fields(said: str) -> Mapping[str, str]:
    """What `scontrol show job` says, by name."""
    pairs = (word.partition("=") for word in said.split())
    return {name: value for name, mark, value in pairs if mark}
