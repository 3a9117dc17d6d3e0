"""Devices are chosen by number where CUDA's numbers are not nvidia-smi's."""

from collections.abc import Iterator

from tunec.compiler.lints.launch.scripts import launches, listed, variable
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    if not _is_mixed(run):
        return
    for document in launches(run):
        order = variable(document, "CUDA_DEVICE_ORDER")
        if order is not None and order.value == "PCI_BUS_ID":
            continue
        place = variable(document, "CUDA_VISIBLE_DEVICES")
        if _by_number(place) and place is not None:
            yield _finding(run, place)
    launched = [variable(each, "CUDA_DEVICE_ORDER") for each in launches(run)]
    if not any(each is not None and each.value == "PCI_BUS_ID" for each in launched):
        for place in run.each("accelerate", "gpu_ids"):
            if _by_number(place):
                yield _finding(run, place)


def _is_mixed(run: Run) -> bool:
    cluster = run.environment.cluster
    return cluster is not None and any(
        len({group.device for group in node.accelerators}) > 1 for node in cluster.nodes
    )


def _by_number(place: Place | None) -> bool:
    names = listed(place)
    return names is not None and all(each.isdigit() for each in names)


def _finding(run: Run, place: Place) -> Finding:
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


RULE = Rule(
    name="device-order-unset",
    severity="warning",
    consequence="silent",
    consumers=("torch",),
    sources=(
        (
            "NVIDIA CUDA C++ Programming Guide, CUDA Environment Variables: CUDA_DEVICE_ORDER is "
            "FASTEST_FIRST by default, PCI_BUS_ID otherwise (12.6)"
        ),
        "meta-llama/llama-cookbook#715: a TITAN RTX beside a GTX 1080 Ti",
    ),
    check=_check,
)
