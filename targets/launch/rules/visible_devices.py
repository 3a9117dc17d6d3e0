"""CUDA_VISIBLE_DEVICES and similar variables."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.frontend.shell_launch import STARTERS
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.launch import (
    VISIBLE_DEVICES,
    batch_of,
    count,
    is_unknown,
    launches,
    listed,
    per_node,
    variable,
)
from tunec.compiler.lints.rule import Finding, keys, rule
from tunec.schemas.frozen import replace
from tunec.targets.launch.rules.slurm import given_to, processes_by_accelerate


@rule(
    "error",
    "silent",
    consumers=("torch",),
    reads=("accelerate:gpu_ids", *VISIBLE_DEVICES),
    hardware=True,
)
def visible_device_missing(run: LintContext) -> Iterator[Finding]:
    """A device is made visible that the node does not have."""
    for document in launches(run):
        batch, visible = batch_of(run, document), variable(document, "CUDA_VISIBLE_DEVICES")
        given = None if batch is None else given_to(batch)
        if visible is not None and str(visible.value).strip() in ("", "-1"):
            yield from _hides_all(run, visible)
        elif visible is not None and given is not None:
            for found in _beyond(visible, given[0], "the job"):
                yield replace(found, severity="warning")  # where cgroups hide the others
    cluster = run.environment.cluster
    if cluster is None:
        return
    most = max(node.device_count for node in cluster.nodes)
    chosen = [variable(each, "CUDA_VISIBLE_DEVICES") for each in launches(run)]
    places = {each.span: each for each in (*chosen, *run.each("accelerate", "gpu_ids")) if each}
    for place in places.values():
        yield from _beyond(place, most, cluster.name)


def _hides_all(run: LintContext, visible: Place) -> Iterator[Finding]:
    cluster, alone = run.environment.cluster, run.said("trainer", "use_cpu", "no_cuda")
    if cluster is not None and cluster.device_count and alone is None:
        yield Finding(
            f"CUDA_VISIBLE_DEVICES is {visible.value or 'empty'}: no device of {cluster.name} is "
            "seen",
            (visible.label("hides all devices"),),
            ("the run continues on the CPU, unless it requires a device",),
            "unset the variable, or list the devices",
            severity="warning",
        )


def _beyond(place: Place, most: int, name: str) -> Iterator[Finding]:
    names = listed(place) or ()
    missing = [each for each in names if each.isdigit() and int(each) >= most]
    if not missing:
        return
    yield Finding(
        f"device {', '.join(missing)} is made visible, but {name} has {most} on a node",
        (place.label(f"numbers end at {most - 1}"),),
        ("CUDA silently hides that entry and all after it",),
        f"use numbers below {most}",
    )


@rule("error", "init", consumers=("torch",), reads=VISIBLE_DEVICES)
def visible_device_twice(run: LintContext) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES names a device twice, and leaves none."""
    for document in launches(run):
        place = variable(document, "CUDA_VISIBLE_DEVICES")
        names = listed(place)
        if document.value("launcher") in STARTERS or place is None or names is None:
            continue
        twice = [name for at, name in enumerate(names) if name in names[:at]]
        if twice:
            yield Finding(
                f"CUDA_VISIBLE_DEVICES={place.value} names device {twice[0]} twice: none is "
                "visible",
                (place.label("no device"),),
                ("a repeated number empties the list",),
                f"write {','.join(dict.fromkeys(names))}",
            )


_WHOLE: Final = re.compile(r"\d+|(?:GPU|MIG)-.+")
_BEGINNING: Final = re.compile(r"\d+")
_NONE: Final = frozenset({"-1", "", "none", "void", "nodevfiles"})
"""Values by which users hide all devices."""


@rule("error", "init", consumers=("torch",), reads=VISIBLE_DEVICES)
def visible_device_unreadable(run: LintContext) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES cannot be parsed to its end."""
    for document in launches(run):
        place, names = (found := variable(document, "CUDA_VISIBLE_DEVICES")), listed(found)
        if place is None or names is None or document.value("launcher") in STARTERS:
            continue
        odd = next((at for at, each in enumerate(names) if not _WHOLE.fullmatch(each)), None)
        if odd is not None and names[odd].lower() not in _NONE:
            yield _unreadable(place, names, odd)


def _unreadable(place: Place, names: tuple[str, ...], odd: int) -> Finding:
    begins = _BEGINNING.match(names[odd])
    left = [*names[:odd], *([begins[0]] if begins else [])]
    if begins:
        left += names[odd + 1 :] if all(map(_WHOLE.fullmatch, names[odd + 1 :])) else []
    told = f"what is left is {','.join(left)}" if left else "no device is left"
    return Finding(
        f"CUDA_VISIBLE_DEVICES={place.value}: `{names[odd]}` is not a device number",
        (place.label(told),),
        ("a word is read as far as it is a number; the list ends at one that is none",),
        "list the numbers: 0,1,2,3",
        consequence="silent" if left else "init",
    )


_OVERRIDDEN_COUNTS = ("flags.num_gpus", "flags.num_accelerators")


@rule("error", "silent", consumers=("deepspeed", "accelerate"), reads=VISIBLE_DEVICES)
def visible_devices_overridden(run: LintContext) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES is set before a launcher that has its own selection."""
    for document in launches(run, "deepspeed"):
        visible = variable(document, "CUDA_VISIBLE_DEVICES")
        names, found = listed(visible), selection(document)
        if visible is None or names is None or found is None or names == found[1]:
            continue
        place, taken = found
        yield Finding(
            f"CUDA_VISIBLE_DEVICES {','.join(names)} is ignored for {_word(place)}",
            (
                visible.label("ignored"),
                place.label(f"takes {','.join(taken)}" if taken else "holds", primary=False),
            ),
            ("the launcher says so among its messages, and sets the variable by itself",),
            f"leave out {_word(place)}, or give the devices as --include "
            f"localhost:{','.join(names)}",
        )
    yield from _of_accelerate(run)


def _of_accelerate(run: LintContext) -> Iterator[Finding]:
    """accelerate overwrites the variable with `gpu_ids`."""
    for document in launches(run, "accelerate"):
        visible, chosen = variable(document, "CUDA_VISIBLE_DEVICES"), gpu_ids(run, document)
        names, taken = listed(visible), listed(chosen)
        if visible is None or chosen is None or taken in (None, ("all",)) or names == taken:
            continue
        yield Finding(
            f"CUDA_VISIBLE_DEVICES {visible.value} is overridden by gpu_ids {chosen.value}",
            (visible.label("overridden"), chosen.label("taken", primary=False)),
            ("accelerate sets the variable to gpu_ids: all devices of the node are numbered",),
            "write gpu_ids: all, or leave out the variable",
        )


def gpu_ids(run: LintContext, document: Document) -> Place | None:
    """The devices that accelerate chooses, as its flag or its file lists them."""
    return document.get("flags.gpu_ids") or run.said("accelerate", "gpu_ids")


def selection(document: Document) -> tuple[Place, tuple[str, ...] | None] | None:
    """The flag that overrides the variable, and its devices."""
    include = document.get("include")
    if include is not None and isinstance(include.value, list):
        return include, tuple(str(each) for each in include.value)
    for key in _OVERRIDDEN_COUNTS:
        place = document.get(key)
        number = count(place)
        if place is not None and number is not None:
            return place, tuple(str(each) for each in range(number))
    for key in ("include_filter", "exclude_filter", "exclude"):
        place = document.get(key)
        if place is not None:
            return place, None
    return None


def _word(place: Place) -> str:
    return f"--{place.path.rpartition('.')[2].removesuffix('_filter')}"


@rule(
    "error",
    "init",
    consumers=("torch", "accelerate"),
    reads=("accelerate:gpu_ids", *VISIBLE_DEVICES),
)
def more_processes_than_visible(run: LintContext) -> Iterator[Finding]:
    """There are more processes on a node than visible devices."""
    for document in launches(run, "torchrun", "accelerate"):
        found, visible = per_node(document), variable(document, "CUDA_VISIBLE_DEVICES")
        found = found or processes_by_accelerate(run, document)
        if found is None or visible is None:
            continue
        if _starts_one(run, document) and len(listed(visible) or ()) == 1 and found[0] > 1:
            yield _one_alone(*found, visible)
        else:
            yield from _compared(*found, visible)
    for document in run.of("accelerate"):
        chosen, processes = document.get("gpu_ids"), document.get("num_processes")
        nodes, number = count(document.get("num_machines")) or 1, count(processes)
        if chosen is None or chosen.value == "all" or processes is None or number is None:
            continue
        yield from _compared(number // nodes, processes, chosen)


_OF_SEVERAL: Final = (
    *("flags.config_file", "flags.multi_gpu", "flags.use_deepspeed", "flags.use_fsdp"),
    *("flags.use_megatron_lm", "flags.tpu", "flags.cpu"),
)


def _starts_one(run: LintContext, document: Document) -> bool:
    """Whether accelerate starts several processes only if it sees several devices.

    accelerate 0.30.1 to 1.15.0 commands/launch.py `_validate_launch_command`, `launch_command`.
    """
    is_bare = not any(document.get(e) or is_unknown(document, e) for e in _OF_SEVERAL)
    return document.value("launcher") == "accelerate" and is_bare and not run.of("accelerate")


def _one_alone(number: int, processes: Place, visible: Place) -> Finding:
    return Finding(
        f"accelerate starts 1 process, and not {number}: 1 device is visible",
        (processes.label("not followed"), visible.label("1 visible", primary=False)),
        ("without a config and --multi_gpu, several are started only where several are visible",),
        f"make {number} devices visible, or write --num_processes 1",
        severity="warning",
        consequence="silent",
    )


def _compared(number: int, processes: Place, visible: Place) -> Iterator[Finding]:
    names = listed(visible)
    if names is None or number <= len(names) or names == ("-1",):
        return
    yield Finding(
        f"{number} processes on a node see {len(names)} device{'s' * (len(names) > 1)}",
        (
            processes.label(f"{number} processes"),
            visible.label(f"{len(names)} visible", primary=False),
        ),
        ("process n takes device n of those that it sees: `invalid device ordinal`",),
        f"start {len(names)}, or make more devices visible",
    )


_FILTERS = ("flags.include", "flags.i", "flags.exclude", "flags.e")
_INCLUDE_COUNTS = ("flags.num_gpus", "flags.num_accelerators", "flags.num_nodes")


@rule("error", "parse", consumers=("deepspeed",), reads=keys("launch", *_FILTERS))
def include_with_count(run: LintContext) -> Iterator[Finding]:
    """The deepspeed launcher gets devices both by name and by number."""
    for document in launches(run, "deepspeed"):
        chosen = [p for key in _FILTERS if (p := document.get(key)) is not None]
        counted = [p for key in _INCLUDE_COUNTS if (p := document.get(key)) is not None]
        words = {each.path.rpartition(".")[2][0] for each in chosen}
        if chosen and counted:
            other, why = counted[0], "Cannot specify num_nodes/gpus with include/exclude"
        elif words == {"i", "e"}:
            other, why = chosen[1], "include_str and exclude_str are mutually exclusive"
        else:
            continue
        yield Finding(
            f"--{chosen[0].path.rpartition('.')[2]} excludes --{other.path.rpartition('.')[2]}",
            (other.key_label("refused"), chosen[0].key_label("", primary=False)),
            (f"the launcher: {why}",),
            "keep one",
        )
