"""Turns the tools' output into a cluster of one node, with a source for every number."""

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from msgspec import Struct

from tunec.compiler.probe.readings import FIELDS, Readings
from tunec.schemas.hardware.catalogue import UnknownName, as_another, device
from tunec.schemas.hardware.profile import Accelerators, Cluster, Device, Host, Link, Node
from tunec.schemas.units import format_bytes

_MIB: Final = 1 << 20
_AGREES: Final = 0.03
"""Readings of one board differ by up to this share between drivers (devices/t4.yaml, `memory`:
14930 to 15360 MiB); beyond it the board differs from the catalogue's, and its own number is
written."""


class Unreadable(Exception):
    """The machine cannot be described; `reasons` holds every reason."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = tuple(reasons)


class Board(Struct, frozen=True):
    """One device as the driver lists it."""

    title: str
    uuid: str
    memory: int
    """Bytes available to a process: the total without the driver's share, if that is known."""
    is_split: bool
    """Whether it runs as MIG instances, which this row does not list."""


def describe(readings: Readings, name: str = "") -> Cluster:
    """Describe this machine as a cluster; the default `name` is the host's.

    Raises Unreadable with every reason at once.
    """
    found = boards(readings.devices or "")
    reasons = list(_refused(found))
    if reasons:
        raise Unreadable(reasons)
    models = [device(board.title) for board in found]
    link, wiring = _link(models, readings.topology)
    host, host_notes = _host(readings)
    return Cluster(
        name=name or readings.host.partition(".")[0] or "this-machine",
        title=_title(models),
        nodes=(
            Node(accelerators=tuple(_groups(found, models, host.memory)), link=link, host=host),
        ),
        software=dict(readings.software),
        sources=_sources(link),
        notes=(*wiring, *host_notes),
    )


def boards(text: str) -> tuple[Board, ...]:
    """Parse nvidia-smi's rows, with all fields or only the old ones."""
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    return tuple(_board(dict(zip(FIELDS, row, strict=False))) for row in rows if len(row) > 2)


def _board(row: dict[str, str]) -> Board:
    reserved = row.get("memory.reserved", "")
    held = int(reserved) if reserved.isdigit() else 0
    total = row["memory.total"]
    return Board(
        row["name"].strip(),
        row["uuid"].strip(),
        (int(total) - held) * _MIB if total.isdigit() else 0,
        row.get("mig.mode.current", "").strip() == "Enabled",
    )


def _refused(found: Sequence[Board]) -> Iterator[str]:
    if not found:
        yield (
            "nvidia-smi lists no device, and other vendors' tools are not supported: write the "
            "cluster by hand, or choose one of `tunec catalog clusters`"
        )
    for at, board in enumerate(found):
        if board.is_split:
            yield (
                f"device {at} ({board.title}) is split by MIG; nvidia-smi does not list "
                "the instances: write the cluster by hand, with an instance's `memory`"
            )
    for title, board in {each.title: each for each in found}.items():
        try:
            device(title)
        except UnknownName as unknown:
            yield f"{unknown}{_by_hand(unknown, board)}"


def _by_hand(unknown: UnknownName, board: Board) -> str:
    """What to write for a board that is not known, if one is similar."""
    if unknown.device is None:
        return ""
    text = as_another(unknown.device, format_bytes(board.memory).replace(" ", ""))
    return f"; nearest: {', '.join(unknown.near)}; as the first of them: `{text}`"


def _groups(found: Sequence[Board], models: Sequence[Device], ram: int) -> Iterator[Accelerators]:
    """Neighbouring boards of one model and size as a group, in bus order."""
    pairs = [
        (model, _own_size(board, model, ram), board)
        for board, model in zip(found, models, strict=True)
    ]
    for (name, size), group in groupby(pairs, key=lambda each: (each[0].name, each[1])):
        uuids = tuple(board.uuid for _, _, board in group)
        yield Accelerators(device=name, count=len(uuids), uuids=uuids, memory=size)


def _own_size(board: Board, model: Device, ram: int) -> int | None:
    """The board's memory if it differs from the catalogue's, or the host's RAM if they share it.

    For a device that shares it, nvidia-smi lists no memory, and torch lists all of it
    (devices/gb10.yaml).
    """
    if model.shares_host_memory:
        return ram
    agrees = not board.memory or abs(board.memory - model.memory) <= _AGREES * model.memory
    return None if agrees else board.memory


def _title(models: Sequence[Device]) -> str:
    counted = [(title, len(list(group))) for title, group in groupby(each.title for each in models)]
    return " and ".join(f"{count} {title}" for title, count in counted)


def _link(models: Sequence[Device], topology: str | None) -> tuple[Link | None, tuple[str, ...]]:
    """The devices' link if every pair is wired, since one unwired pair slows down all of them."""
    if len(models) < 2:
        return None, ()
    ways = pairs(topology or "", len(models))
    links = [each.link for each in models if each.link is not None]
    wired = sum(way.startswith("NV") for way in ways)
    if not ways:
        return None, ("link: nvidia-smi reports no topology; PCIe and the host are assumed",)
    if wired == len(ways) and len(links) == len(models):
        return min(links, key=lambda link: link.bandwidth), ()
    if wired:
        return None, (
            f"link: NVLink joins {wired} of {len(ways)} pairs; the other pairs limit the speed",
        )
    return None, (f"link: {', '.join(sorted(set(ways)))}, which is PCIe and the host",)


def pairs(topology: str, count: int) -> tuple[str, ...]:
    """The connection of each pair of devices, in the words of `nvidia-smi topo -m`: NV12, PHB, SYS.

    Empty if the matrix is incomplete.
    """
    plain = re.sub(r"\x1b\[[0-9;]*m", "", topology)
    rows = [line.split() for line in plain.splitlines() if re.match(r"GPU\d+\s", line)]
    if len(rows) != count or any(len(row) <= count for row in rows):
        return ()
    return tuple(row[1 + other] for at, row in enumerate(rows) for other in range(at + 1, count))


def _host(readings: Readings) -> tuple[Host, tuple[str, ...]]:
    installed = _installed(readings.meminfo or "")
    limit = (readings.memory_limit or "").strip()
    allowed = min(installed, int(limit)) if limit.isdigit() else installed
    notes = [
        "host: memory bandwidth is assumed; NVMe is not measured, add `nvme` for offload to it"
    ]
    if allowed < installed:
        notes.append(
            f"host: the control group allows {format_bytes(allowed)} of {format_bytes(installed)}"
        )
    cores = min(_cores(readings.cpuinfo or "") or readings.usable_cores, readings.usable_cores)
    return Host(memory=allowed, cores=cores), tuple(notes)


def _installed(meminfo: str) -> int:
    """Bytes of RAM; raises Unreadable if the kernel does not report it."""
    found = re.search(r"^MemTotal:\s+(\d+) kB", meminfo, re.MULTILINE)
    if found is None:
        raise Unreadable(["/proc/meminfo does not say how much memory the host has"])
    return int(found[1]) * 1024


def _cores(cpuinfo: str) -> int:
    """Physical cores: distinct pairs of package and core; 0 if a virtual CPU hides them."""
    packages = re.findall(r"^physical id\s*: (\d+)", cpuinfo, re.MULTILINE)
    cores = re.findall(r"^core id\s*: (\d+)", cpuinfo, re.MULTILINE)
    return len(set(zip(packages, cores, strict=False)))


def _sources(link: Link | None) -> dict[str, str]:
    found = {
        "nodes[0].accelerators": "tunec probe: nvidia-smi --query-gpu, in PCI bus order",
        "nodes[0].host.memory": "tunec probe: /proc/meminfo, and the control group's limit",
        "nodes[0].host.cores": "tunec probe: /proc/cpuinfo, and the process's affinity",
        "nodes[0].host.memory_bandwidth": "assumed",
    }
    if link is not None:
        found["nodes[0].link"] = "nvidia-smi topo -m: NVLink between every two; the device's own"
    return found
