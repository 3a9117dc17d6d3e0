"""Rules about the choice of devices."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.wording import quoted
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.launch import (
    VISIBLE_DEVICES,
    batch_of,
    count,
    flags,
    hostfiles,
    is_unknown,
    launches,
    listed,
    per_node,
    variable,
)
from tunec.compiler.lints.rule import Finding, rule
from tunec.targets.launch.rules.slurm import given_to

_SLOTS: Final = re.compile(r"\d+(,\d+)*")
_NUMBERS: Final = re.compile(r"[\d,\s-]+")


@rule(
    "error",
    "init",
    consumers=("deepspeed",),
    reads=(*flags("include", "exclude"), *VISIBLE_DEVICES),
    hardware=True,
)
def device_filter_refused(run: LintContext) -> Iterator[Finding]:
    """--include or --exclude of the deepspeed launcher has a form that it cannot parse."""
    for document in launches(run, "deepspeed"):
        if run.runs("deepspeed<0.15") is True:
            yield from _not_from_zero(document)
        for key in ("flags.include", "flags.exclude"):
            place = document.get(key)
            why = None if place is None else _why(str(place.value), document.get("hostfile"))
            if place is not None and why is not None:
                yield _filter_finding(place, *why)
            elif place is not None and document.get("hostfile") is not None:
                yield from _beyond(run, place)
            elif place is not None:
                yield from _beyond_node(run, document, place)


def _not_from_zero(document: Document) -> Iterator[Finding]:
    """0.14 looks for the variable's numbers among those of the devices that it counts.

    It removes the variable before it counts, so that it is the machine that says how many there
    are: torch asks NVML, and where that is not there the CUDA runtime, which may have read the
    variable already (torch 2.13.0 cuda/__init__.py `device_count`).
    """
    visible, names = variable(document, "CUDA_VISIBLE_DEVICES"), tuple[str, ...]()
    if not any(document.get(key) for key in (*_SELECTIONS, "hostfile")):
        names = listed(visible) or ()
    beyond = [each for each in names if each.isdigit() and int(each) >= len(names)]
    if visible is not None and beyond:
        yield Finding(
            f"CUDA_VISIBLE_DEVICES {','.join(names)}: the launcher may count from 0 to "
            f"{len(names) - 1}, and find no device {beyond[0]}",
            (visible.label("may be refused"),),
            (
                (
                    "it passes the variable to --include and removes it: where CUDA was started "
                    f"before, the numbers are looked for among 0 to {len(names) - 1}"
                ),
            ),
            f"unset it, and write --include localhost:{','.join(names)}",
            severity="warning",
        )


_SELECTIONS: Final = ("include", "exclude", "flags.include", "flags.exclude", "flags.num_gpus")


def _why(text: str, hostfile: Place | None) -> tuple[str, bool] | None:
    """The error, and whether a hostfile that is not read might correct it."""
    for node in text.split("@"):
        host, given, slots = node.partition(":")
        if not given and _NUMBERS.fullmatch(host):
            return f"`{host}` is read as the name of a host", False
        if given and not _SLOTS.fullmatch(slots):
            return f"`{slots}` is not a list of numbers", False
        if host != "localhost" and hostfile is None:
            return f"{host} is in no hostfile: none is given", True
    return None


def _beyond(run: LintContext, place: Place) -> Iterator[Finding]:
    """A host or a device that the hostfile does not list."""
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


def _beyond_node(run: LintContext, document: Document, place: Place) -> Iterator[Finding]:
    """A device that the node does not have, or that Slurm does not give to the job."""
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


def _filter_finding(place: Place, why: str, is_open: bool) -> Finding:
    flag = "--" + place.path.removeprefix("flags.")
    return Finding(
        f"{flag} {place.value}: {why}",
        (place.label("refused"),),
        (
            "the form is HOST:DEVICE,DEVICE, and @ between hosts",
            *(("/job/hostfile is read if it exists",) if is_open else ()),
        ),
        "give the launcher --hostfile" if is_open else f"write {flag} localhost:0,1",
        severity="warning" if is_open else None,
    )


@rule(
    "warning",
    "silent",
    consumers=("torch",),
    reads=("accelerate:gpu_ids", *VISIBLE_DEVICES),
    hardware=True,
)
def device_order_unset(run: LintContext) -> Iterator[Finding]:
    """Devices are chosen by number although CUDA's order may differ from nvidia-smi's."""
    if not _is_mixed(run):
        return
    for document in launches(run):
        order = variable(document, "CUDA_DEVICE_ORDER")
        if order is not None and order.value == "PCI_BUS_ID":
            continue
        place = variable(document, "CUDA_VISIBLE_DEVICES")
        if _by_number(place) and place is not None:
            yield _order_finding(run, place)
    launched = [variable(each, "CUDA_DEVICE_ORDER") for each in launches(run)]
    if not any(each is not None and each.value == "PCI_BUS_ID" for each in launched):
        for place in run.each("accelerate", "gpu_ids"):
            if _by_number(place):
                yield _order_finding(run, place)


def _is_mixed(run: LintContext) -> bool:
    cluster = run.environment.cluster
    return cluster is not None and any(
        len({group.device for group in node.accelerators}) > 1 for node in cluster.nodes
    )


def _by_number(place: Place | None) -> bool:
    names = listed(place)
    return names is not None and all(each.isdigit() for each in names)


def _order_finding(run: LintContext, place: Place) -> Finding:
    titles = " and ".join(each.title for each in run.environment.devices.values())
    return Finding(
        "devices are chosen by number without CUDA_DEVICE_ORDER=PCI_BUS_ID",
        (place.label("numbered by CUDA, fastest first"),),
        (
            (
                f"the node has {titles}: CUDA numbers the fastest first, nvidia-smi by PCI bus, so "
                "that the same number may be another device"
            ),
        ),
        "export CUDA_DEVICE_ORDER=PCI_BUS_ID beside it, or name devices by UUID",
    )


@rule(
    "warning", "slow", consumers=("torch", "accelerate"), reads=("launch:launcher",), hardware=True
)
def devices_left_idle(run: LintContext) -> Iterator[Finding]:
    """Devices are allocated or made visible without a process for each."""
    for document in launches(run, "torchrun", "accelerate"):
        yield from _of_visible(document)
    for document in launches(run, "accelerate"):
        yield from _of_accelerate(run, document)
    by_slurm = {each.name: each for each in launches(run, "srun")}
    for document in launches(run, "torchrun"):
        batch = batch_of(run, document)
        given = given_to(batch) if batch is not None else None
        said, launcher = document.get("per_node"), document.get("launcher")
        if batch is None and said is None:
            yield from _of_hardware(run, document)
        if given is None or is_unknown(document, "per_node") or launcher is None:
            continue
        started = 1 if said is None else count(said)
        tasks = count(batch.get("ntasks_per_node")) if batch is not None else None
        several = tasks is not None and tasks > 1 and document.name in by_slurm
        if started is None or several or started >= given[0] or document.unknown & {"flags"}:
            continue
        yield Finding(
            f"{given[0]} devices on a node, and torchrun starts {started} process"
            + ("" if started == 1 else "es"),
            (
                (said or launcher).label(f"{started} of {given[0]}"),
                given[1].label("", primary=False),
            ),
            ("a process uses one device", "--nproc_per_node defaults to 1"),
            f"write --nproc_per_node {given[0]}, or ask for {started}",
        )


def _generates(document: Document) -> bool:
    """Whether the script also runs an inference engine, which may need its own devices."""
    return any(word in document.text.lower() for word in ("vllm", "grpo", "sglang"))


def _of_visible(document: Document) -> Iterator[Finding]:
    """There are more visible devices than processes."""
    visible, started = variable(document, "CUDA_VISIBLE_DEVICES"), per_node(document)
    names = listed(visible)
    if visible is None or started is None or names is None or document.unknown & {"flags"}:
        return
    if started[0] < len(names) and started[0] > 1 and not _generates(document):
        yield _devices_finding(started, (len(names), visible), str(document.value("launcher")))


def _of_accelerate(run: LintContext, document: Document) -> Iterator[Finding]:
    """`--num_processes` counts the processes of all machines, and is given for one."""
    started, batch = per_node(document), batch_of(run, document)
    given = given_to(batch) if batch is not None else None
    if started is None or given is None or document.unknown & {"flags"}:
        return
    if 1 < started[0] < given[0] and not _generates(document):
        yield _devices_finding(started, given, "accelerate")


def _devices_finding(
    started: tuple[int, Place], given: tuple[int, Place], launcher: str
) -> Finding:
    return Finding(
        f"{given[0]} devices on a node, and {launcher} starts {started[0]} processes there",
        (started[1].label(f"{started[0]} of {given[0]}"), given[1].label("", primary=False)),
        ("a process uses one device",)
        + (("--num_processes counts all machines together",) if launcher == "accelerate" else ()),
        f"start {given[0]} on a node, or take {started[0]}",
    )


def _of_hardware(run: LintContext, document: Document) -> Iterator[Finding]:
    """No number of processes is given on a machine with several devices."""
    cluster, launcher = run.environment.cluster, document.get("launcher")
    have = min(node.device_count for node in cluster.nodes) if cluster else 1
    apart = variable(document, "CUDA_VISIBLE_DEVICES") or run.environment.world
    unknown = is_unknown(document, "per_node") or document.unknown & {"flags"}
    if have > 1 and launcher is not None and not apart and not unknown and cluster is not None:
        yield Finding(
            f"{have} devices on a node of {cluster.name}, and torchrun starts 1 process",
            (launcher.label(f"1 of {have}"),),
            ("a process uses one device", "--nproc_per_node defaults to 1"),
            f"write --nproc_per_node {have}",
        )
