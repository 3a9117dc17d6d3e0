"""Several nodes, each of which waits for the others at itself."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.scripts import (
    count,
    is_unknown,
    launches,
    numbers_nodes_itself,
)
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

LOCAL: Final = frozenset({"127.0.0.1", "localhost", "0.0.0.0", "::1"})  # noqa: S104  nothing is bound
"""Where a process that connects reaches its own host: 0.0.0.0 is for listening alone."""
_WHERE = ("flags.master_addr", "flags.rdzv_endpoint")


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run, "torchrun"):
        nodes = document.get("nodes")
        if nodes is None or (count(nodes) or 0) < 2:
            continue
        fault = _of_torchrun(document)
        port = _open_port(document)
        if fault is not None:
            yield _finding(nodes, *fault)
        elif port is not None:
            yield Finding(
                f"{nodes.value} nodes that meet at port 0",
                (port.label("another port on every node"), nodes.label("", primary=False)),
                ("0 lets the system choose a free port, which the other nodes are not told",),
                "write a number, such as 29500",
            )


def _of_torchrun(document: Document) -> tuple[Place | None, str] | None:
    alone = document.get("flags.standalone")
    if alone is not None:
        return alone, "--rdzv_endpoint instead of --standalone"
    if any(is_unknown(document, key) for key in _WHERE) or document.unknown & {"flags"}:
        return None
    said = [place for key in _WHERE if (place := document.get(key)) is not None]
    backend, end = document.get("flags.rdzv_backend"), document.get("flags.rdzv_endpoint")
    if said and end is None and backend is not None and numbers_nodes_itself(document):
        return said[0], f"--rdzv_endpoint, which {backend.value} reads instead of --master_addr"
    local = [each for each in said if str(each.value).partition(":")[0] in LOCAL]
    if said and not local:
        return None
    return (local[0] if local else None), "--master_addr or --rdzv_endpoint"


def _open_port(document: Document) -> Place | None:
    port, end = document.get("flags.master_port"), document.get("flags.rdzv_endpoint")
    if end is not None:
        return end if str(end.value).endswith(":0") else None
    return port if port is not None and str(port.value) == "0" else None


def _finding(nodes: Place, other: Place | None, what: str) -> Finding:
    return Finding(
        f"{nodes.value} nodes without an address where they meet",
        (
            nodes.label(f"{nodes.value} nodes"),
            *([other.label("each node itself", primary=False)] if other else []),
        ),
        ("each node waits at itself until the rendezvous times out",),
        f"give every node {what} of the first one",
    )


RULE = Rule(
    name="nodes-without-meeting-point",
    severity="error",
    consequence="hang",
    consumers=("torch",),
    sources=(
        (
            "torch 2.13.0 distributed/run.py: --master_addr is 127.0.0.1 by default "
            "(PET_MASTER_ADDR, not MASTER_ADDR); --standalone: rdzv_endpoint localhost:0"
        ),
    ),
    check=_check,
)
