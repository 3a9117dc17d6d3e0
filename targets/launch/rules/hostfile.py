"""The deepspeed launcher's hostfile."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.launch import Entry, count, flags, hostfiles, launches
from tunec.compiler.lints.rows import Row, rows
from tunec.compiler.lints.rule import Finding, rule


@rule("error", "init", consumers=("deepspeed",), reads=("hostfile:*",))
def hostfile_refused(run: LintContext) -> Iterator[Finding]:
    """The deepspeed launcher refuses a line of the hostfile."""
    for document, entries in hostfiles(run):
        seen: dict[str, Label] = {}
        for each in entries:
            if each.slots is None:
                yield Finding(
                    f"the hostfile's line `{each.place.value}` is not HOST slots=NUMBER",
                    (each.label("refused"),),
                    ("Hostfile contains a bad entry: nothing is started",),
                    f"write {each.host} slots=8, with as many as the host has devices",
                )
            elif each.host in seen:
                yield Finding(
                    f"the hostfile names {each.host} twice",
                    (each.label("refused"), seen[each.host]),
                    ("Hostfile contains multiple entries: nothing is started",),
                    "give each host one line with all of its devices",
                )
            seen.setdefault(each.host, each.label("", primary=False))
        if not entries:
            yield Finding(
                "the hostfile names no host",
                (Label("no line of the form HOST slots=NUMBER", document.start()),),
                (),
                "write a line for each host",
            )


@rule(
    "error",
    "init",
    consumers=("deepspeed",),
    reads=flags("num_gpus", "num_accelerators", "num_nodes"),
)
def more_processes_than_slots(run: LintContext) -> Iterator[Finding]:
    """The deepspeed launcher is to start more than its hostfile lists."""
    files = tuple(hostfiles(run))
    if len(files) != 1:
        return
    entries = files[0][1]
    if not entries or any(each.slots is None for each in entries):
        return
    for document in launches(run, "deepspeed"):
        if document.get("hostfile") is not None:
            yield from _beyond_hostfile(document, entries)


def _beyond_hostfile(document: Document, entries: tuple[Entry, ...]) -> Iterator[Finding]:
    devices = document.get("flags.num_gpus") or document.get("flags.num_accelerators")
    wanted = count(devices)
    short = next((each for each in entries if wanted and wanted > (each.slots or 0)), None)
    if devices is not None and short is not None:
        yield _devices(devices, short, len(entries))
    nodes = document.get("flags.num_nodes")
    if nodes is not None and (count(nodes) or 0) > len(entries):
        yield Finding(
            f"--num_nodes {nodes.value} of a hostfile with {len(entries)}",
            (nodes.label("never reached"), entries[-1].label("the last host", primary=False)),
            (f"the launcher silently takes the {len(entries)} that exist",),
            f"write --num_nodes {len(entries)}, or name the other hosts in the hostfile",
            consequence="silent",
        )


def _devices(devices: Place, short: Entry, hosts: int) -> Finding:
    is_total = isinstance(devices.value, int) and devices.value == hosts * (short.slots or 0)
    return Finding(
        f"--num_gpus {devices.value}, and {short.host} has {short.slots} slots",
        (devices.label("processes on each host"), short.label("", primary=False)),
        (
            (
                "num_gpus is per host, and is not checked against its slots: a process is "
                "started for each, and those beyond the devices fail (invalid device ordinal)"
            ),
            *((f"{devices.value} is the number over all {hosts} hosts",) if is_total else ()),
        ),
        f"write --num_gpus {short.slots}, or leave it out: the hostfile says it",
    )


nodes_without_hostfile = rows(
    "nodes-without-hostfile",
    "warning",
    "silent",
    consumers=("deepspeed",),
    rows=(
        Row(
            "launch:flags.num_nodes>1",
            "{0.value} nodes need a hostfile that names them",
            label="only this node",
            why=(
                "without a hostfile the launcher takes the devices of its own machine",
                "/job/hostfile is read if it exists",
            ),
            help="give the launcher --hostfile with a line `NAME slots=8` for each node",
            beside=(
                "(launcher=deepspeed)",
                "no hostfile|flags.hostfile|flags.H|flags.no_ssh|flags.launcher",
            ),
        ),
    ),
)
