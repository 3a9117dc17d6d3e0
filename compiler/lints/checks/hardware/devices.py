"""Devices that torch, vLLM or the compiler do not serve."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.facts.precision import below, turned_on, with_capability
from tunec.compiler.lints.facts.quantization import processes
from tunec.compiler.lints.rule import ALWAYS, Finding, rule
from tunec.schemas.torch_builds import BUILDS, INDEX, Build, builds_of

_BLACKWELL: Final = (10, 0)
_SINCE: Final = "2.7"
_CUDA: Final = "CUDA 12.8"


@rule(
    "device-newer-than-torch",
    "error",
    "init",
    consumers=("torch",),
    sources=(
        (
            "PyTorch 2.7 release, pytorch.org/blog/pytorch-2-7: support for the NVIDIA Blackwell "
            "architecture, and wheels of CUDA 12.8"
        ),
        (
            "pytorch/pytorch#150733, FlyMyAI/flymyai-lora-trainer#47, Hellod035/LeggedLab#26: "
            "older wheels hold sm_50 to sm_90"
        ),
    ),
    reads=ALWAYS,
    hardware=True,
)
def device_newer_than_torch(run: LintContext) -> Iterator[Finding]:
    """A device that is newer than the torch which is to run on it."""
    device = run.environment.weakest
    documents = [each for each in run.documents if not each.is_view]
    if device is None or device.compute_capability is None or not documents:
        return
    if tuple(device.compute_capability) >= _BLACKWELL and run.runs(f"torch<{_SINCE}") is True:
        yield Finding(
            f"{with_capability(device)} is newer than torch {run.release('torch').version}",
            (Label("runs there", documents[0].start(), "", True),),
            (
                "CUDA error: no kernel image is available for execution on the device",
                f"torch {_SINCE} is the first with kernels for it, in its wheels of {_CUDA}",
            ),
            f"use torch {_SINCE} or later, of {_CUDA} or later",
        )


@rule(
    "device-older-than-torch",
    "error",
    "init",
    consumers=("torch",),
    sources=(
        "pytorch/pytorch RELEASE.md, PyTorch CUDA Support Matrix: 12.6 from 5.0, 13.0 from 7.5",
        "pytorch/pytorch#157517, #172352, #190385: Maxwell, Pascal and Volta leave the builds",
    ),
    reads=ALWAYS,
    hardware=True,
)
def device_older_than_torch(run: LintContext) -> Iterator[Finding]:
    """A device that the builds of the torch which runs on it no longer have kernels for."""
    device = run.environment.weakest
    documents = [each for each in run.documents if not each.is_view]
    named = run.environment.software.get("torch", "")
    if device is None or device.compute_capability is None or not documents:
        return
    known = _asked(named)
    capability = device.compute_capability
    if not known or known[0].runs_on("nvidia", capability) or _is_newer(capability):
        return
    other = next((each for each in known if each.runs_on("nvidia", capability)), None)
    label = Label("runs there", documents[0].start(), "", True)
    kernels = ", ".join(f"{major}.{minor}" for major, minor in known[0].kernels)
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
    sources=(
        (
            "torch 2.13.0 nn/parallel/distributed.py: every process holds the same model and joins "
            "the same all-reduce"
        ),
        "transformers 4.40.2 to 5.23.0: per_device_train_batch_size is one number",
    ),
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


@rule(
    "vllm-without-hardware",
    "error",
    "init",
    consumers=("trl",),
    sources=(
        "vLLM documentation, Installation, GPU: NVIDIA compute capability 7.0 or higher (0.10)",
    ),
    reads=("trainer:use_vllm", "axolotl:trl.use_vllm"),
    hardware=True,
)
def vllm_without_hardware(run: LintContext) -> Iterator[Finding]:
    """vLLM on devices that it does not run on."""
    device = below(run, 7)
    if device is None:
        return
    places = [*run.each("trainer", "use_vllm"), *run.each("axolotl", "trl.use_vllm")]
    for place in places:
        if place.value is True:
            yield Finding(
                f"{with_capability(device)} is too old for vLLM",
                (place.label("needs 7.0"),),
                ("vLLM's kernels are built for compute capability 7.0 and more",),
                "generate with transformers: use_vllm: false",
            )


_KEYS: Final = (
    ("trainer", "torch_compile"),
    ("axolotl", "torch_compile"),
    ("trainer", "use_liger_kernel"),
    ("llamafactory", "enable_liger_kernel"),
    ("axolotl", "liger_rms_norm"),
)


@rule(
    "compile-without-hardware",
    "error",
    "step",
    consumers=("torch",),
    sources=(
        "torch 2.13.0 _inductor/exc.py `GPUTooOldForTriton`: needs CUDA capability 7.0; "
        "utils/_triton.py `has_triton`: get_device_capability() >= (7, 0)"
    ),
    reads=tuple(f"{kind}:{key}" for kind, key in _KEYS),
    hardware=True,
)
def compile_without_hardware(run: LintContext) -> Iterator[Finding]:
    """torch.compile on devices that Triton has no code for."""
    device = below(run, 7)
    if device is None:
        return
    for place in turned_on(run, _KEYS, ""):
        yield Finding(
            f"{with_capability(device)} is too old for Triton",
            (place.label("needs 7.0"),),
            ("Found GPU which is too old to be supported by the triton GPU compiler",),
            "leave it out",
        )
