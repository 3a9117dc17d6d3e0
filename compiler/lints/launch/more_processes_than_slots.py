"""The deepspeed launcher is asked for more than its hostfile has."""

from collections.abc import Iterator

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.hosts import Entry, hostfiles
from tunec.compiler.lints.launch.scripts import count, launches
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    files = tuple(hostfiles(run))
    if len(files) != 1:
        return
    entries = files[0][1]
    if not entries or any(each.slots is None for each in entries):
        return
    for document in launches(run, "deepspeed"):
        if document.get("hostfile") is not None:
            yield from _of(document, entries)


def _of(document: Document, entries: tuple[Entry, ...]) -> Iterator[Finding]:
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
            (f"the launcher takes the {len(entries)} that there are, and says nothing",),
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
                "num_gpus is for each host, and is not held against its slots: a process is "
                "started for each, and those beyond the devices fail (invalid device ordinal)"
            ),
            *((f"{devices.value} is the number over all {hosts} hosts",) if is_total else ()),
        ),
        f"write --num_gpus {short.slots}, or leave it out: the hostfile says it",
    )


RULE = Rule(
    name="more-processes-than-slots",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 launcher/runner.py `main`, 0.19.8 "
            "`apply_num_nodes_and_gpus`: active_resources[hostname] = list(range(num_gpus)) for "
            "each host; num_nodes stops after that many hosts"
        ),
        "deepspeedai/DeepSpeedExamples#893",
    ),
    check=_check,
)
