"""Devices that torch does not serve, that differ, or whose memory does not hold the run."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.facts.precision import with_capability
from tunec.compiler.lints.facts.quantization import processes
from tunec.compiler.lints.rule import ALWAYS, Finding, rule
from tunec.schemas.torch_builds import BUILDS, INDEX, Build, builds_of, spelled

if TYPE_CHECKING:
    from tunec.schemas.hardware.profile import Device


_BLACKWELL: Final = (10, 0)


class _Newer(NamedTuple):
    """A generation of devices: the first torch with kernels for it, and the wheels they are in."""

    release: str
    wheels: str


_OF_BLACKWELL: Final = _Newer("2.7", "CUDA 12.8")
_OF_CDNA_4: Final = _Newer("2.10", "ROCm 7.0")


@rule("device-newer-than-torch", "error", "init", consumers=("torch",), reads=ALWAYS, hardware=True)
def device_newer_than_torch(run: LintContext) -> Iterator[Finding]:
    """A device that is newer than the torch which is to run on it."""
    device = run.environment.weakest
    documents = [each for each in run.documents if not each.is_view]
    newer = _generation(device) if device is not None else None
    if device is None or newer is None or not documents:
        return
    if run.runs(f"torch<{newer.release}") is True:
        runtime = "HIP" if device.gfx else "CUDA"
        yield Finding(
            f"{with_capability(device)} is newer than torch {run.release('torch').version}",
            (Label("runs there", documents[0].start(), "", True),),
            (
                f"{runtime} error: no kernel image is available for execution on the device",
                (
                    f"torch {newer.release} is the first with kernels for it, in its wheels of "
                    f"{newer.wheels}"
                ),
            ),
            f"use torch {newer.release} or later, of {newer.wheels} or later",
        )


def _generation(device: "Device") -> _Newer | None:
    """What a device needs that older wheels lack; None: nothing."""
    if device.gfx == "gfx950":
        return _OF_CDNA_4
    is_blackwell = device.compute_capability and device.compute_capability >= _BLACKWELL
    return _OF_BLACKWELL if is_blackwell else None


@rule("device-older-than-torch", "error", "init", consumers=("torch",), reads=ALWAYS, hardware=True)
def device_older_than_torch(run: LintContext) -> Iterator[Finding]:
    """A device that the builds of the torch which runs on it no longer have kernels for."""
    device = run.environment.weakest
    documents = [each for each in run.documents if not each.is_view]
    torch = run.release("torch")
    named = str(torch.version) if torch.is_named else ""
    if device is None or device.compute_capability is None or not documents:
        return
    known = _asked(named)
    capability = device.compute_capability
    if not known or known[0].runs_on("nvidia", capability) or _is_newer(capability):
        return
    other = next((each for each in known if each.runs_on("nvidia", capability)), None)
    label = Label("runs there", documents[0].start(), "", True)
    kernels = ", ".join(map(spelled, known[0].kernels))
    notes = (
        "CUDA error: no kernel image is available for execution on the device",
        f"torch {known[0].version} has kernels for {kernels}",
    )
    message = f"torch {named} has no kernels for {with_capability(device)}"
    if other is None:
        yield Finding(message, (label,), notes, _older(capability))
    else:
        yield Finding(
            f"{message} in its wheel on PyPI",
            (label,),
            notes,
            f"pip install torch=={other.version} --index-url {INDEX}/{other.name}",
            severity="warning",
        )


def _asked(named: str) -> tuple[Build, ...]:
    """The CUDA builds of a release, the one on PyPI first; the one alone that a version names."""
    local = named.partition("+")[2]
    every = (each for each in builds_of(named) if each.vendor == "nvidia")
    return tuple(each for each in every if local in ("", each.name))


def _is_newer(capability: tuple[int, int]) -> bool:
    """Whether later builds are the way out, which `device-newer-than-torch` tells."""
    return not any(each.runs_on("nvidia", capability) for each in BUILDS[:1])


def _older(capability: tuple[int, int]) -> str:
    found = next(each for each in reversed(BUILDS) if each.runs_on("nvidia", capability))
    return f"use torch {found.version}, from {INDEX}/{found.name}"


@rule(
    "unequal-devices",
    "warning",
    "slow",
    consumers=("torch",),
    reads=("slot:parallel.world",),
    hardware=True,
)
def unequal_devices(run: LintContext) -> Iterator[Finding]:
    """Devices of different kinds in one data parallel run."""
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


def _most_alike(run: LintContext) -> int:
    """The largest number of devices of one kind."""
    cluster = run.environment.cluster
    if cluster is None:
        return 0
    counts: dict[str, int] = {}
    for node in cluster.nodes:
        for group in node.accelerators:
            counts[group.device] = counts.get(group.device, 0) + group.count * node.count
    return max(counts.values(), default=0)
