"""Several nodes that must find each other."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.frontend.shell_launch import STARTERS
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.launch import (
    COMMANDS,
    LOCAL,
    batch_of,
    count,
    is_unknown,
    launches,
    numbers_nodes_itself,
    variable,
    variables,
)
from tunec.compiler.lints.rows import Row, rows
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.frozen import replace
from tunec.targets.launch.lines import at_offset, scripts

_NAMES: Final = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")

_BRIDGES: Final = ("docker", "virbr", "veth")
"""Networks within a host, for containers and virtual machines; NCCL excludes docker's and lo if it
may choose."""


@rule("error", "hang", consumers=("nccl",), reads=variables(*_NAMES))
def loopback_between_nodes(run: LintContext) -> Iterator[Finding]:
    """Several nodes are to communicate over their own loopback."""
    for document in launches(run):
        nodes = document.get("nodes")
        for name in _NAMES:
            place = variable(document, name)
            if place is None or nodes is None or (count(nodes) or 0) < 2:
                continue
            word = str(place.value).lstrip("=")
            if word in ("lo", "lo0") or word.startswith(_BRIDGES):
                kind = "a bridge on this host" if word.startswith(_BRIDGES) else "the loopback"
                yield Finding(
                    f"{nodes.value} nodes cannot meet over {name}={place.value}",
                    (place.label(kind), nodes.label("", primary=False)),
                    ("each node offers the others an address that is only its own",),
                    "name the interface of the network, as `ip addr` shows it",
                )


node_rank_missing = rows(
    "node-rank-missing",
    "error",
    "init",
    consumers=("deepspeed",),
    rows=(
        Row(
            "launch:flags.no_ssh=true",
            "--no_ssh needs --node_rank",
            label="refused",
            why=(
                "each node starts its own processes, and must be given its number",
                "Launching training without ssh, but --node_rank is not set correctly",
            ),
            help="add --node_rank, counted from 0, different on each node",
            beside=("(launcher=deepspeed)", "no flags.node_rank"),
            at_key=True,
        ),
    ),
)


@rule("error", "silent", consumers=("torch", "accelerate"), reads=("slurm:nodes",))
def nodes_train_apart(run: LintContext) -> Iterator[Finding]:
    """Slurm starts a launcher on several nodes, and each node trains alone."""
    steps = {each.name: each for each in launches(run, "srun")}
    for document in launches(run, "torchrun", "accelerate"):
        step, batch = steps.get(document.name), batch_of(run, document)
        nodes = batch.get("nodes") if batch is not None else None
        if step is None or nodes is None or (count(nodes) or 0) < 2 or _is_joined(document, step):
            continue
        place = document.get("nodes") or document.get("launcher")
        meets = document.get("flags.rdzv_endpoint") is not None
        yield Finding(
            f"{nodes.value} runs of one node each, instead of one run of {nodes.value} nodes",
            (
                *([place.label("counts one node")] if place else []),
                nodes.label(f"srun starts it on {nodes.value}", primary=False),
            ),
            (
                "the rendezvous is complete with one node, and the others are not let in"
                if meets
                else "they do not meet, train the same model, and write to the same place",
            ),
            "tell the launcher the nodes and where they meet",
            consequence="hang" if meets else None,
        )


def _is_joined(document: Document, step: Document) -> bool:
    """Whether the launcher is configured for several nodes, or srun starts it on one."""
    keys = ("nodes", "flags.nnodes", "flags.num_machines", "flags.config_file")
    if any(is_unknown(document, key) for key in keys) or document.unknown & {"flags"}:
        return True
    if document.get("flags.config_file") or (count(document.get("nodes")) or 1) > 1:
        return True
    if document.get("nodes") is not None and count(document.get("nodes")) is None:
        return True  # a range, 1:4
    return any(step.get(f"flags.{key}") for key in ("nodes", "N", "w", "nodelist", "n", "ntasks"))


_WHERE = ("flags.master_addr", "flags.rdzv_endpoint")


@rule("error", "hang", consumers=("torch",), reads=("launch:nodes",))
def nodes_without_meeting_point(run: LintContext) -> Iterator[Finding]:
    """Each of several nodes waits for the others at its own address."""
    for document in launches(run, "torchrun"):
        nodes = document.get("nodes")
        if nodes is None or (count(nodes) or 0) < 2:
            continue
        fault = _of_torchrun(document)
        port = _open_port(document)
        if fault is not None:
            yield _meeting_finding(nodes, *fault)
        elif port is not None:
            yield Finding(
                f"{nodes.value} nodes that meet at port 0",
                (port.label("a different port on every node"), nodes.label("", primary=False)),
                ("0 lets the system choose a free port, which the other nodes do not know",),
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
    if (said and not local) or document.value("flags.node_rank") in (0, "0"):
        return None  # the script of the first node, which is itself where they meet
    return (local[0] if local else None), "--master_addr or --rdzv_endpoint"


def _open_port(document: Document) -> Place | None:
    port, end = document.get("flags.master_port"), document.get("flags.rdzv_endpoint")
    if end is not None:
        return end if str(end.value).endswith(":0") else None
    return port if port is not None and str(port.value) == "0" else None


def _meeting_finding(nodes: Place, other: Place | None, what: str) -> Finding:
    return Finding(
        f"{nodes.value} nodes need an address where they meet",
        (nodes.label(f"{nodes.value} nodes"), *also(other, "each node itself")),
        ("each node waits at itself until the rendezvous times out",),
        f"give every node {what} of the first one",
    )


_RANK: Final = re.compile(r"--(node|machine)[_-]rank[ =]\"?\$\{?(?:SLURM_NODEID|SLURM_PROCID)\b\}?")
_SHELL: Final = re.compile(r"(?:ba|z|\b)sh\b.*\s-l?c\s+(.)")
"""A shell within the command, and the quote around its command."""
_KEYS: Final = ("flags.node_rank", "flags.machine_rank")
_RANK_OF_TASK: Final = "inside srun bash -c '... --node_rank $SLURM_NODEID ...'"


@rule("error", "hang", consumers=("torch", "accelerate"), reads=COMMANDS)
def one_rank_for_every_node(run: LintContext) -> Iterator[Finding]:
    """Slurm starts a launcher on every node, and each gets the same node rank."""
    starters = {each.name: each.value("launcher") for each in launches(run, *STARTERS)}
    for document in launches(run, "torchrun", "accelerate"):
        if document.name not in starters or not _has_several_nodes(run, document):
            continue
        if numbers_nodes_itself(document) or _starts_one_task(run, document.name):
            continue
        nodes = document.get("nodes")
        if nodes is not None and _is_left_out(document):
            yield _without(nodes, starters[document.name])
        for rank in _ranks(run, document):
            if rank is not None and type(rank.value) is int:
                yield Finding(
                    f"{starters[document.name]} starts this on every node, and each is node "
                    f"{rank.value}",
                    (rank.label("the same on all nodes"),),
                    _NOTES,
                    _help(starters[document.name]),
                )
    for document in scripts(run):
        yield from _too_early(run, document)


_NOTES: Final = ("each waits for the others, but all have the same number",)


_ONE: Final = ("flags.ntasks", "flags.n", "flags.nodes", "flags.N")


def _starts_one_task(run: LintContext, name: str) -> bool:
    """Whether each srun of a script starts one task, or uses one node, as in a loop."""
    mine = [each for each in launches(run, *STARTERS) if each.name == name]
    return all(any(str(each.value(key)) == "1" for key in _ONE) for each in mine)


def _is_left_out(document: Document) -> bool:
    """Whether torchrun's default 0 applies; accelerate may read the rank from another file."""
    is_open = document.unknown & {"flags", "flags.node_rank", "flags.rdzv_backend"}
    is_torchrun = document.value("launcher") == "torchrun"
    is_set = document.get("environment.PET_NODE_RANK") or document.get("flags.standalone")
    meets = document.get("flags.master_addr") or document.get("flags.rdzv_endpoint")
    said = document.get("flags.node_rank")
    return bool(is_torchrun and not is_open and meets and said is None and not is_set)


def _help(starter: str) -> str:
    told = f", or take the number {_RANK_OF_TASK}" if starter == "srun" else ""
    return f"use --rdzv_backend c10d{told}"


def _without(nodes: Place, starter: str) -> Finding:
    return Finding(
        f"{starter} starts this on every node, and each is node 0",
        (nodes.label("no --node_rank"),),
        ("--node_rank defaults to 0", *_NOTES),
        _help(starter),
    )


def _ranks(run: LintContext, document: Document) -> Iterator[Place | None]:
    """The places of the node's rank: a flag, else accelerate's file."""
    yield from (document.get(key) for key in _KEYS)
    if document.value("launcher") == "accelerate" and not any(map(document.get, _KEYS)):
        yield from run.each("accelerate", "machine_rank")


def _has_several_nodes(run: LintContext, document: Document) -> bool:
    batch = batch_of(run, document)
    nodes = (document.get("nodes"), batch.get("nodes") if batch else None)
    return any((count(each) or 0) > 1 for each in nodes)


def _too_early(run: LintContext, document: Document) -> Iterator[Finding]:
    """`srun torchrun --node_rank $SLURM_NODEID`: the batch script itself runs on node 0."""
    for found in _RANK.finditer(document.text):
        command = _command_around(document.text, found.start())
        if (
            "c10d" not in command
            and re.search(r"\bsrun\b", command)
            and not _may_be_put_in_later(run, document, command)
        ):
            yield Finding(
                "the node's number is expanded before srun starts: it is that of the first node",
                (
                    replace(
                        at_offset(document, found.start(), len(found[0]), "0 on all nodes"),
                        path=f"flags.{found[1]}_rank",
                    ),
                ),
                _NOTES,
                f"use --rdzv_backend c10d, or take the number {_RANK_OF_TASK}",
            )


def _may_be_put_in_later(run: LintContext, document: Document, command: str) -> bool:
    """Whether the shell of each task expands it: single quotes defer that, double quotes do not."""
    inner = _SHELL.search(command)
    if inner is None or inner[1] != '"':
        return inner is not None
    batch = batch_of(run, document)
    nodes = count(batch.get("nodes")) if batch is not None else None
    return (nodes or 1) < 2 or "c10d" in document.text  # a variable may hold what is left out


def _command_around(text: str, at: int) -> str:
    """The line at a place, with the lines that backslashes join to it."""
    lines, first = text.split("\n"), text[:at].count("\n")
    last = first
    while first and lines[first - 1].endswith("\\"):
        first -= 1
    while last + 1 < len(lines) and lines[last].endswith("\\"):
        last += 1
    return " ".join(line.removesuffix("\\") for line in lines[first : last + 1])


_PAIRS: Final = (
    ("launch", "flags.node_rank", "nodes"),
    ("launch", "flags.machine_rank", "flags.num_machines"),
    ("accelerate", "machine_rank", "num_machines"),
)


@rule(
    "error",
    "hang",
    consumers=("torch", "accelerate"),
    reads=tuple(f"{kind}:{rank}" for kind, rank, _ in _PAIRS),
)
def rank_beyond_nodes(run: LintContext) -> Iterator[Finding]:
    """A node's rank is not below the number of nodes."""
    for kind, rank_key, count_key in _PAIRS:
        for document in run.of(kind):
            rank, count = document.get(rank_key), document.get(count_key)
            if kind == "launch" and numbers_nodes_itself(document):
                continue
            if rank is not None and count is not None and _is_beyond(rank.value, count.value):
                yield _beyond_finding(rank, count)


def _is_beyond(rank: object, count: object) -> bool:
    return type(rank) is int and type(count) is int and count > 0 and not 0 <= rank < count


def _beyond_finding(rank: Place, count: Place) -> Finding:
    return Finding(
        f"node {rank.value} of {count.value}: nodes are counted from 0 to {count.value - 1}",
        (rank.label("no such node"), count.label(f"{count.value} nodes", primary=False)),
        ("the others wait for a node that never comes, until the rendezvous times out",),
        f"number the nodes from 0 to {count.value - 1}",
    )
