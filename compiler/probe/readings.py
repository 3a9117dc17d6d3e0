"""What the machine's own tools say, as text: all that `tunec probe` takes from outside.

nvidia-smi(1), `--help-query-gpu`: the fields; devices come in the order of their PCI bus ids, which
is what `CUDA_DEVICE_ORDER=PCI_BUS_ID` numbers. `memory.reserved` (the driver's own share, which a
process cannot have) and `mig.mode.current` are fields that older drivers refuse.
proc(5): `/proc/meminfo`, `/proc/cpuinfo`. Linux, Documentation/admin-guide/cgroup-v2.rst:
`memory.max`.
"""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from msgspec import Struct

FIELDS: Final = ("name", "uuid", "memory.total", "memory.reserved", "mig.mode.current")
"""Fields to query for every device."""
OLD_FIELDS: Final = FIELDS[:3]
"""Fields that every driver supports."""
_SECONDS: Final = 60
"""A driver that starts for this query takes many seconds on a large machine."""


class Readings(Struct, frozen=True):
    """Texts as the tools print them; None if there is no such tool or file."""

    host: str
    """The machine's name on its network."""
    devices: str | None
    """nvidia-smi's CSV without header and units: `FIELDS`, or `OLD_FIELDS`."""
    topology: str | None
    """`nvidia-smi topo -m`."""
    meminfo: str | None
    cpuinfo: str | None
    memory_limit: str | None
    """The limit of the control group in bytes, or `max`."""
    usable_cores: int
    """Logical cores that this process may run on."""
    software: Mapping[str, str]
    """Installed versions of the requested packages in this Python."""


def take(packages: Iterable[str]) -> Readings:
    """Read this machine, and the named packages' versions in this Python."""
    return Readings(
        platform.node(),
        _query(FIELDS) or _query(OLD_FIELDS),
        _output_of("nvidia-smi", "topo", "-m"),
        _text("/proc/meminfo"),
        _text("/proc/cpuinfo"),
        _text("/sys/fs/cgroup/memory.max"),
        _usable_cores(),
        _versions(packages),
    )


def _query(fields: Iterable[str]) -> str | None:
    return _output_of(
        "nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"
    )


def _output_of(*command: str) -> str | None:
    """The output of a command; None if it does not exist or fails."""
    found = shutil.which(command[0])
    if found is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603 - fixed words, no shell
            [found, *command[1:]], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _text(path: str) -> str | None:
    try:
        return Path(path).read_text("utf-8")
    except OSError:
        return None


def _usable_cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _versions(packages: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in sorted(set(packages)):
        try:
            found[name] = version(name).partition("+")[0]
        except PackageNotFoundError:
            continue
    return found
