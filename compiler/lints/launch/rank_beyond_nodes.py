"""A node's number that is none of the numbers from 0 to the number of nodes."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.launch.scripts import numbers_nodes_itself
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_PAIRS: Final = (
    ("launch", "flags.node_rank", "nodes"),
    ("launch", "flags.machine_rank", "flags.num_machines"),
    ("accelerate", "machine_rank", "num_machines"),
)


def _check(run: Run) -> Iterator[Finding]:
    for kind, rank_key, count_key in _PAIRS:
        for document in run.of(kind):
            rank, count = document.get(rank_key), document.get(count_key)
            if kind == "launch" and numbers_nodes_itself(document):
                continue
            if rank is not None and count is not None and _is_beyond(rank.value, count.value):
                yield _finding(rank, count)


def _is_beyond(rank: object, count: object) -> bool:
    return type(rank) is int and type(count) is int and count > 0 and not 0 <= rank < count


def _finding(rank: Place, count: Place) -> Finding:
    return Finding(
        f"node {rank.value} of {count.value}: nodes are counted from 0 to {count.value - 1}",
        (rank.label("no such node"), count.label(f"{count.value} nodes", primary=False)),
        ("the others wait for a node that never comes, until the rendezvous times out",),
        f"number the nodes from 0 to {count.value - 1}",
    )


RULE = Rule(
    name="rank-beyond-nodes",
    severity="error",
    consequence="hang",
    consumers=("torch", "accelerate"),
    sources=(
        (
            "torch 2.13.0 distributed/run.py: --node_rank; "
            "distributed/elastic/rendezvous/static_tcp_rendezvous.py: the node of rank 0 is the "
            "master, ranks are taken as they are"
        ),
        "accelerate 0.30.1 to 1.15.0 utils/launch.py `prepare_multi_gpu_env`: node_rank",
    ),
    check=_check,
)
