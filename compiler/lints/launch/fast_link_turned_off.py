"""NCCL is kept from the fastest link that the hardware has."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.scripts import launches, variable
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_FAST: Final = ("nvlink", "nvswitch")
_PEER: Final = {"NCCL_P2P_DISABLE": ("1",), "NCCL_P2P_LEVEL": ("loc", "0")}
_SHARED: Final = {"NCCL_SHM_DISABLE": ("1",)}
_FABRIC: Final = {"NCCL_IB_DISABLE": ("1",), "NCCL_NET": ("socket",)}


def _check(run: Run) -> Iterator[Finding]:
    cluster = run.environment.cluster
    if cluster is None or cluster.device_count < 2:
        return
    links = [node.link.kind for node in cluster.nodes if node.link is not None]
    network = cluster.network
    for document in launches(run):
        fast = next((kind for kind in links if kind in _FAST), None)
        peer = _told(document, _PEER)
        if peer is not None and fast is not None:
            yield _finding(peer, f"{fast} between the devices of a node")
        shared = _told(document, _SHARED)
        if shared is not None and (peer is not None or fast is None):
            yield _finding(shared, "shared memory between the processes of a node")
        several = sum(node.count for node in cluster.nodes) > 1
        rdma = network.kind if network and network.kind in ("infiniband", "roce") else None
        fabric = _told(document, _FABRIC) if several and rdma is not None else None
        if fabric is not None:
            yield _finding(fabric, f"{rdma} between the nodes")


def _told(document: Document, ways: Mapping[str, tuple[str, ...]]) -> Place | None:
    """The first of these variables that is set to one of its words."""
    for name, words in ways.items():
        place = variable(document, name)
        if place is not None and str(place.value).lower() in words:
            return place
    return None


def _finding(place: Place, what: str) -> Finding:
    name = place.path.rpartition(".")[2]
    return Finding(
        f"{name}={place.value} leaves {what} unused",
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
            "over NVLink or PCI), NCCL_P2P_LEVEL (LOC: never), NCCL_SHM_DISABLE (the network "
            "instead), NCCL_IB_DISABLE (IP sockets instead), NCCL_NET (the module by its name)"
        ),
    ),
    check=_check,
)
