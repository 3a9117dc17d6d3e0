"""One node of a run: its RAM, its NVMe, and the processes on it."""

from tunec.compiler.lints.run import Run
from tunec.schemas.frozen import dataclass

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Node:
    """The node with the least, where the hardware is known."""

    nodes: int
    memory: int
    """Bytes of RAM."""
    nvme: int | None
    """Bytes of NVMe; None: there is none, or nobody says."""
    processes: int


def node_of(run: Run) -> Node | None:
    """The smallest node of the run's hardware, with the processes that it gets."""
    cluster, processes = run.environment.cluster, processes_of(run)
    if cluster is None or processes is None:
        return None
    drives = [each.host.nvme for each in cluster.nodes]
    known = [each.capacity for each in drives if each is not None]
    return Node(
        sum(each.count for each in cluster.nodes),
        min(each.host.memory for each in cluster.nodes),
        min(known) if len(known) == len(drives) else None,
        processes,
    )


def processes_of(run: Run) -> int | None:
    """The processes that a node gets; None: the hardware is unknown."""
    cluster = run.environment.cluster
    if cluster is None:
        return None
    nodes = sum(each.count for each in cluster.nodes)
    world = run.value("parallel.world", cluster.device_count)
    return max(1, -(-world // nodes)) if isinstance(world, int) else 1


def parameters(run: Run) -> int:
    """Parameters of the model; 0 where it is unknown."""
    return sum(each.parameters for each in run.model.architecture.modules) if run.model else 0


def trains_all(run: Run) -> bool:
    """Whether nothing says that less than the whole model is trained."""
    if run.value("adapter.kind", "none") != "none" or run.of("peft"):
        return False
    method = run.said("llamafactory", "finetuning_type")
    adapter = run.said("axolotl", "adapter")
    is_part = method is not None and method.value != "full"
    return not is_part and (adapter is None or adapter.value in (None, ""))
