"""A device is made visible that the node does not have."""

from collections.abc import Iterator
from dataclasses import replace

from tunec.compiler.lints.launch.more_than_allocated import given_to
from tunec.compiler.lints.launch.scripts import batch_of, launches, listed, variable
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run):
        batch, visible = batch_of(run, document), variable(document, "CUDA_VISIBLE_DEVICES")
        given = None if batch is None else given_to(batch)
        if visible is not None and str(visible.value).strip() in ("", "-1"):
            yield from _hides_all(run, visible)
        elif visible is not None and given is not None:
            for found in _of(visible, given[0], "the job"):
                yield replace(found, severity="warning")  # where cgroups hide the others
    cluster = run.environment.cluster
    if cluster is None:
        return
    most = max(node.device_count for node in cluster.nodes)
    chosen = [variable(each, "CUDA_VISIBLE_DEVICES") for each in launches(run)]
    places = {each.span: each for each in (*chosen, *run.each("accelerate", "gpu_ids")) if each}
    for place in places.values():
        yield from _of(place, most, cluster.name)


def _hides_all(run: Run, visible: Place) -> Iterator[Finding]:
    cluster, alone = run.environment.cluster, run.said("trainer", "use_cpu", "no_cuda")
    if cluster is not None and cluster.device_count and alone is None:
        yield Finding(
            f"CUDA_VISIBLE_DEVICES is {visible.value or 'empty'}: no device of {cluster.name} is "
            "seen",
            (visible.label("hides all devices"),),
            ("the run goes on on the processor, where it does not ask for a device",),
            "unset the variable, or list the devices",
            severity="warning",
        )


def _of(place: Place, most: int, name: str) -> Iterator[Finding]:
    names = listed(place) or ()
    missing = [each for each in names if each.isdigit() and int(each) >= most]
    if not missing:
        return
    yield Finding(
        f"device {', '.join(missing)} is made visible, but {name} has {most} on a node",
        (place.label(f"numbers end at {most - 1}"),),
        ("CUDA hides that entry and all behind it, without a message",),
        f"use numbers below {most}",
    )


RULE = Rule(
    name="visible-device-missing",
    severity="error",
    consequence="silent",
    consumers=("torch",),
    sources=(
        (
            "NVIDIA CUDA C++ Programming Guide, CUDA_VISIBLE_DEVICES (12.6): if one of the indices "
            "is invalid, only the devices whose index precedes it are visible"
        ),
        (
            "Slurm 24.05 gres.conf manual page and Generic Resource guide: a job sees its devices "
            "alone, counted from 0, where cgroups constrain them"
        ),
    ),
    check=_check,
)
