"""One node of a run: its RAM, its NVMe, and its processes."""

import re
from typing import Final

from msgspec import Struct

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.launch import count
from tunec.compiler.lints.facts.lora import has_adapter
from tunec.compiler.lints.facts.memory.parameters import asked_of, has_script

GIB = 2**30
_SIZE: Final = re.compile(r"(\d+)([KMGT]?)B?", re.IGNORECASE)
_UNITS: Final = {"": 2**20, "K": 2**10, "M": 2**20, "G": GIB, "T": 2**40}
"""Units of `--mem=<size>[units]` in the Slurm 24.05 sbatch manual page: megabytes by default; size
0 requests all."""


class Node(Struct, frozen=True):
    """The smallest amounts of any node in the run's known hardware."""

    nodes: int
    memory: int
    """Bytes of RAM."""
    nvme: int | None
    """Bytes of NVMe; None if there is none or its size is unknown."""
    processes: int
    granted: Place | None = None
    """The place where a batch script requests less memory than the node has."""


def granted_memory(run: LintContext) -> tuple[int, Place] | None:
    """Bytes of a node's RAM that a batch script requests from Slurm, and the place."""
    found = [got for batch in run.of("slurm") if (got := _granted(batch)) is not None]
    return min(found, key=lambda each: each[0]) if found else None


def _granted(batch: Document) -> tuple[int, Place] | None:
    whole, share = batch.get("mem"), batch.get("mem_per_cpu")
    if whole is not None and (size := _bytes(whole)):
        return size, whole
    tasks = count(batch.get("ntasks_per_node")) or 1
    cores = count(batch.get("cpus_per_task")) or 1
    size = _bytes(share) if share is not None else 0
    return (size * tasks * cores, share) if share is not None and size else None


def _bytes(place: Place) -> int:
    found = _SIZE.fullmatch(str(place.value).strip())
    return int(found[1]) * _UNITS[found[2].upper()] if found else 0


def node_of(run: LintContext) -> Node | None:
    """The smallest amounts of the run's nodes, with the processes of a node; None if unknown."""
    cluster, processes = run.environment.cluster, processes_of(run)
    if cluster is None or processes is None:
        return None
    drives = [each.host.nvme for each in cluster.nodes]
    known = [each.capacity for each in drives if each is not None]
    memory, granted = min(each.host.memory for each in cluster.nodes), granted_memory(run)
    is_less = granted is not None and granted[0] < memory
    return Node(
        sum(each.count for each in cluster.nodes),
        granted[0] if granted is not None and is_less else memory,
        min(known) if len(known) == len(drives) else None,
        processes,
        granted[1] if granted is not None and is_less else None,
    )


def processes_of(run: LintContext) -> int | None:
    """The number of processes on a node; None if the hardware is unknown."""
    cluster = run.environment.cluster
    if cluster is None:
        return None
    nodes = sum(each.count for each in cluster.nodes)
    world = run.value("parallel.world", cluster.device_count)
    return max(1, -(-world // nodes)) if isinstance(world, int) else 1


def parameters(run: LintContext) -> int:
    """The number of parameters of the model; 0 if the model is unknown."""
    return sum(each.parameters for each in run.model.architecture.modules) if run.model else 0


def trains_all(run: LintContext) -> bool:
    """Whether the whole model is trained, as far as the files show."""
    if has_adapter(run):
        return False
    if has_script(run):
        asked = asked_of(run)
        return asked is not None and not asked.adapted
    method = run.said("llamafactory", "finetuning_type")
    adapter = run.said("axolotl", "adapter")
    is_part = method is not None and method.value != "full"
    return not is_part and (adapter is None or adapter.value in (None, ""))
