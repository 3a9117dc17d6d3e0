"""Several nodes that are told to talk over their own loopback."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.launch.scripts import count, launches, variable
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_NAMES: Final = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")

_BRIDGES: Final = ("docker", "virbr", "veth")
"""Networks within a host, for containers and virtual machines; NCCL leaves docker's and lo out by
itself where it may choose."""


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run):
        nodes = document.get("nodes")
        for name in _NAMES:
            place = variable(document, name)
            if place is None or nodes is None or (count(nodes) or 0) < 2:
                continue
            word = str(place.value).lstrip("=")
            if word in ("lo", "lo0") or word.startswith(_BRIDGES):
                kind = "a bridge of this host" if word.startswith(_BRIDGES) else "the loopback"
                yield Finding(
                    f"{nodes.value} nodes over {name}={place.value}, which leads to none of them",
                    (place.label(kind), nodes.label("", primary=False)),
                    ("each node offers the others an address that is only its own",),
                    "name the interface of the network, as `ip addr` shows it",
                )


RULE = Rule(
    name="loopback-between-nodes",
    severity="error",
    consequence="hang",
    consumers=("nccl",),
    sources=("NCCL 2.21 user guide, Environment Variables, NCCL_SOCKET_IFNAME",),
    check=_check,
)
