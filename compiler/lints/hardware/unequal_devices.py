"""Devices of different kinds in one data parallel run."""

from collections.abc import Iterator

from tunec.compiler.lints.quantization.base import processes
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    cluster, devices = run.environment.cluster, run.environment.devices
    world = processes(run)
    if cluster is None or len(devices) < 2 or world is None or world < 2:
        return
    place = run.place(run.world)
    if place is None or run.value("devices.visible"):
        return
    every = sorted(devices.values(), key=lambda each: each.memory)
    least, most = every[0], every[-1]
    if least.memory == most.memory or world <= _most_alike(run):
        return
    from tunec.schemas.units import format_bytes

    yield Finding(
        f"{world} processes share {', '.join(each.title for each in every)}",
        (place.label("one process a device, each with the same batch"),),
        (
            (
                f"{least.title} has {format_bytes(least.memory)}, {most.title} "
                f"{format_bytes(most.memory)}: what fits the smaller is all that is used, and each "
                "step waits for the slowest"
            ),
        ),
        "choose equal devices with CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER=PCI_BUS_ID",
    )


def _most_alike(run: Run) -> int:
    """The largest number of devices of one kind."""
    cluster = run.environment.cluster
    if cluster is None:
        return 0
    counts: dict[str, int] = {}
    for node in cluster.nodes:
        for group in node.accelerators:
            counts[group.device] = counts.get(group.device, 0) + group.count * node.count
    return max(counts.values(), default=0)


RULE = Rule(
    name="unequal-devices",
    severity="warning",
    consequence="slow",
    consumers=("torch",),
    sources=(
        (
            "torch 2.13.0 nn/parallel/distributed.py: every process holds the same model and joins "
            "the same all-reduce"
        ),
        "transformers 4.40.2 to 5.23.0: per_device_train_batch_size is one number",
    ),
    check=_check,
)
