"""--include or --exclude of the deepspeed launcher in a form that it does not read."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.wording import quoted
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.hosts import hostfiles
from tunec.compiler.lints.launch.more_than_allocated import given_to
from tunec.compiler.lints.launch.scripts import batch_of, launches, listed, variable
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_SLOTS: Final = re.compile(r"\d+(,\d+)*")
_NUMBERS: Final = re.compile(r"[\d,\s-]+")


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run, "deepspeed"):
        if run.runs("deepspeed<0.15") is True:
            yield from _not_from_zero(document)
        for key in ("flags.include", "flags.exclude"):
            place = document.get(key)
            why = None if place is None else _why(str(place.value), document.get("hostfile"))
            if place is not None and why is not None:
                yield _finding(place, *why)
            elif place is not None and document.get("hostfile") is not None:
                yield from _beyond(run, place)
            elif place is not None:
                yield from _beyond_node(run, document, place)


def _not_from_zero(document: Document) -> Iterator[Finding]:
    """0.14 counts the devices that it sees, and looks for the variable's numbers among them."""
    visible, names = variable(document, "CUDA_VISIBLE_DEVICES"), tuple[str, ...]()
    if not any(document.get(key) for key in (*_SELECTIONS, "hostfile")):
        names = listed(visible) or ()
    beyond = [each for each in names if each.isdigit() and int(each) >= len(names)]
    if visible is not None and beyond:
        yield Finding(
            f"CUDA_VISIBLE_DEVICES {','.join(names)}: the launcher counts {len(names)} devices, "
            f"and finds no device {beyond[0]}",
            (visible.label("refused"),),
            (
                (
                    "it hands the variable to --include, whose numbers it looks for among 0 to "
                    f"{len(names) - 1}"
                ),
            ),
            f"unset it, and write --include localhost:{','.join(names)}",
        )


_SELECTIONS: Final = ("include", "exclude", "flags.include", "flags.exclude", "flags.num_gpus")


def _why(text: str, hostfile: Place | None) -> tuple[str, bool] | None:
    """What is wrong, and whether a hostfile that is not seen could make it right."""
    for node in text.split("@"):
        host, given, slots = node.partition(":")
        if not given and _NUMBERS.fullmatch(host):
            return f"`{host}` is read as the name of a host", False
        if given and not _SLOTS.fullmatch(slots):
            return f"`{slots}` is no list of numbers", False
        if host != "localhost" and hostfile is None:
            return f"{host} is in no hostfile: none is given", True
    return None


def _beyond(run: Run, place: Place) -> Iterator[Finding]:
    """A host or a device that the hostfile does not name."""
    files = tuple(hostfiles(run))
    if len(files) != 1 or any(each.slots is None for each in files[0][1]):
        return
    hosts = {each.host: each for each in files[0][1]}
    flag = "--" + place.path.removeprefix("flags.")
    for node in str(place.value).split("@"):
        host, _, slots = node.partition(":")
        entry = hosts.get(host)
        numbers = [int(each) for each in slots.split(",") if each]
        beyond = [each for each in numbers if entry and each >= (entry.slots or 0)]
        if entry is None and hosts:
            yield Finding(
                f"{flag} {place.value}: {host} is in no line of the hostfile",
                (place.label("refused"),),
                (f"it names {quoted(list(hosts)[:8])}",),
                "write the host as the hostfile names it",
            )
        elif entry is not None and beyond:
            yield Finding(
                f"{flag} {place.value}: {host} has {entry.slots} slots, and no device {beyond[0]}",
                (place.label("refused"), entry.label("devices of the host", primary=False)),
                ("slots counts all devices of the host, from 0; the filter chooses among them",),
                f"write slots={max(beyond) + 1} or more, as many as {host} has devices",
            )


def _beyond_node(run: Run, document: Document, place: Place) -> Iterator[Finding]:
    """A device that the one node does not have, or that Slurm does not give the job."""
    batch, cluster = batch_of(run, document), run.environment.cluster
    given = None if batch is None else given_to(batch)
    have, who = (given[0], "Slurm gives the job") if given else (0, "")
    if not given and cluster is not None:
        have, who = max(node.device_count for node in cluster.nodes), f"{cluster.name} has"
    host, _, slots = str(place.value).partition(":")
    beyond = [each for each in slots.split(",") if each and int(each) >= have]
    if host == "localhost" and have and beyond:
        flag = "--" + place.path.removeprefix("flags.")
        yield Finding(
            f"{flag} {place.value}: {who} {have} devices on a node, and no device {beyond[0]}",
            (place.label("refused"), *([given[1].label("", primary=False)] if given else ())),
            ("the launcher counts the devices that it sees, from 0, whichever they are",),
            f"choose among 0 to {have - 1}",
        )


def _finding(place: Place, why: str, is_open: bool) -> Finding:
    flag = "--" + place.path.removeprefix("flags.")
    return Finding(
        f"{flag} {place.value}: {why}",
        (place.label("refused"),),
        (
            "the form is HOST:DEVICE,DEVICE, and @ between hosts",
            *(("/job/hostfile is read where it is there",) if is_open else ()),
        ),
        "give the launcher --hostfile" if is_open else f"write {flag} localhost:0,1",
        severity="warning" if is_open else None,
    )


RULE = Rule(
    name="device-filter-refused",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 launcher/runner.py `parse_resource_filter`, "
            "`parse_node_config`: NODE_SPEC is NAME[:SLOT[,SLOT ...]], Hostname not found in "
            "hostfile, No slot specified on host"
        ),
        "deepspeedai/DeepSpeed#1331 (numbers of the node in a job of Slurm)",
        "deepspeedai/DeepSpeed#3624",
        (
            "deepspeed 0.14.5 launcher/runner.py `main`; deepspeedai/DeepSpeed#4248, #5818, ended "
            "by #6530"
        ),
    ),
    check=_check,
)
