"""NCCL is kept from the fastest link that the hardware has."""

from collections.abc import Iterator

from tunec.compiler.lints.launch.scripts import launches, variable
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_FAST = ("nvlink", "nvswitch")


def _check(run: Run) -> Iterator[Finding]:
    cluster = run.environment.cluster
    if cluster is None or cluster.device_count < 2:
        return
    links = [node.link.kind for node in cluster.nodes if node.link is not None]
    network = cluster.network
    for document in launches(run):
        peer, fabric = variable(document, "NCCL_P2P_DISABLE"), variable(document, "NCCL_IB_DISABLE")
        fast = next((kind for kind in links if kind in _FAST), None)
        if peer is not None and _is_on(peer) and fast is not None:
            yield _finding(peer, f"{fast} between the devices of a node")
        several = sum(node.count for node in cluster.nodes) > 1
        rdma = network.kind if network and network.kind in ("infiniband", "roce") else None
        if fabric is not None and _is_on(fabric) and several and rdma is not None:
            yield _finding(fabric, f"{rdma} between the nodes")


def _is_on(place: Place) -> bool:
    return str(place.value) == "1"


def _finding(place: Place, what: str) -> Finding:
    name = place.path.rpartition(".")[2]
    return Finding(
        f"{name}=1 leaves {what} unused",
        (place.label("turns it off"),),
        ("NCCL then goes through host memory or TCP, which is ten times as slow and more",),
        "remove it: it is for cards without peer access and networks without RDMA",
    )


RULE = Rule(
    name="fast-link-turned-off",
    severity="warning",
    consequence="slow",
    consumers=("torch",),
    sources=(
        (
            "NVIDIA NCCL 2.27 documentation, Environment Variables: NCCL_P2P_DISABLE (direct "
            "access "
            "over NVLink or PCI), NCCL_IB_DISABLE (IP sockets instead)"
        ),
    ),
    check=_check,
)
