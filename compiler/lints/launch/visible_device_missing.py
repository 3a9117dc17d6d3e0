"""A device is made visible that the node does not have."""

from collections.abc import Iterator

from tunec.compiler.lints.launch.scripts import launches, listed, variable
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    cluster = run.environment.cluster
    if cluster is None:
        return
    most = max(node.device_count for node in cluster.nodes)
    chosen = [variable(each, "CUDA_VISIBLE_DEVICES") for each in launches(run)]
    places = {each.span: each for each in (*chosen, *run.each("accelerate", "gpu_ids")) if each}
    for place in places.values():
        yield from _of(place, most, cluster.name)


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
            "is "
            "invalid, only the devices whose index precedes it are visible"
        ),
    ),
    check=_check,
)
