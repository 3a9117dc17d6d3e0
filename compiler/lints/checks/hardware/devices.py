"""Devices that torch does not serve, that differ, or whose memory does not hold the run."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from tunec.compiler.diagnostics.diagnostic import Label, Term
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place
from tunec.compiler.lints.facts.precision import with_capability
from tunec.compiler.lints.facts.quantization import processes
from tunec.compiler.lints.facts.training_loop import strategy_of
from tunec.compiler.lints.rule import ALWAYS, Finding, rule
from tunec.schemas.frozen import replace
from tunec.schemas.torch_builds import BUILDS, INDEX, Build, builds_of, spelled

if TYPE_CHECKING:
    from tunec.compiler.analyses.memory.account import Account
    from tunec.compiler.analyses.memory.workload import Workload
    from tunec.compiler.lints.facts.memory.estimate import Estimate
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
    named = run.environment.software.get("torch", "")
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


@rule("device-memory-exceeded", "error", "out-of-memory", consumers=("torch",), hardware=True)
def device_memory_exceeded(run: LintContext) -> Iterator[Finding]:
    """What the run holds does not fit the device."""
    if run.environment.cluster is None:
        return
    from tunec.compiler.lints.facts.memory.engines import told
    from tunec.compiler.lints.facts.memory.estimate import estimate

    run = told(run)
    found = estimate(run) if run.model is not None else None
    if found is None:
        return
    is_known = _is_layout_known(run) and not found.is_assumed
    labels = (*_of_evaluation(run, found.account), *_labels(run, is_known=is_known))
    if not labels:
        return
    writes = found.account.peak.evaluates and found.account.workload.evaluated is not None
    if found.still_bytes > found.capacity:
        finding = _never_fits(found, labels)
        if _may_be_sharded(run):
            notes = (*finding.notes, "unless accelerate launch is told to shard it")
            finding = replace(finding, notes=notes, severity="warning")
        yield replace(finding, certain=is_known)
    elif found.account.peak_bytes > found.capacity and (writes or found.knows_length):
        finding = (_writing if writes else _full_samples)(found, labels)
        yield replace(finding, certain=is_known)
    elif found.still_bytes + found.beside_bytes > found.capacity:
        finding = _no_room(found, found.still_bytes, found.still_terms)
        yield replace(finding, labels=labels, certain=is_known)
    elif found.account.peak_bytes + found.beside_bytes > found.capacity and found.knows_length:
        finding = _no_room(found, found.account.peak_bytes, found.account.terms)
        yield replace(finding, labels=labels, certain=is_known)


def _is_layout_known(run: LintContext) -> bool:
    """Whether it is told how the states are spread: a launcher's file may yet ask for FSDP."""
    from tunec.compiler.lints.facts.memory.engines import is_fully_sharded

    told = run.of("deepspeed", "accelerate") or is_fully_sharded(run)
    if run.of("llamafactory", "axolotl"):
        return True  # their own commands start processes that shard nothing unless the file asks
    if run.value("parallel.world") == 1 or told:
        return True
    return any(each.value("launcher") in ("torchrun", "deepspeed") for each in run.of("launch"))


def _may_be_sharded(run: LintContext) -> bool:
    """Whether LLaMA-Factory's file is alone, for several devices, and names nothing that shards.

    llamafactory 0.9.4 examples/ascend/qwen3_full_sft_fsdp2.yaml is such a file.
    """
    is_alone = not run.of("launch", "accelerate", "deepspeed")
    return bool(run.of("llamafactory")) and is_alone and run.value("parallel.world") != 1


def _never_fits(found: "Estimate", labels: tuple[Label, ...]) -> Finding:
    from tunec.schemas.units import format_bytes

    return Finding(
        f"this needs {format_bytes(found.still_bytes)} of {format_bytes(found.capacity)} on each "
        f"{found.device} whatever the samples",
        labels,
        (
            "weights, gradients and optimizer states alone, in the cheapest reading of the files",
            *(("nothing says how much is trained: all is taken to be",) * found.is_assumed),
        ),
        "shard more (ZeRO stage 3), offload, quantise under an adapter, or use more devices",
        sum=tuple(Term(name, size) for name, size in found.still_terms.items()),
    )


def _no_room(found: "Estimate", taken: int, terms: Mapping[str, int]) -> Finding:
    """What fits by its tensors alone; labels are to be put in."""
    from tunec.schemas.units import format_bytes

    account, left = found.account, format_bytes(found.capacity - taken)
    number = (
        account.layout.batch.evaluation if account.peak.evaluates else account.layout.batch.micro
    )
    samples = f"with {number} x {_sample(account.workload)}"
    return Finding(
        f"this leaves {left} of {format_bytes(found.capacity)} on each {found.device} "
        f"{'whatever the samples' if taken == found.still_bytes else samples}",
        (),
        (f"beside tensors a process takes {format_bytes(found.beside_bytes)}: {found.beside}",),
        "shard more (ZeRO stage 3), offload, take fewer or shorter samples, or use more devices",
        sum=tuple(Term(name, size) for name, size in terms.items()),
        severity="warning",
    )


def _writing(found: "Estimate", labels: tuple[Label, ...]) -> Finding:
    from tunec.schemas.units import format_bytes

    account = found.account
    batch, asked = account.layout.batch, account.workload.evaluated
    beams = f" and {asked.beams} beams" if asked is not None and asked.beams > 1 else ""
    tokens = asked.tokens if asked is not None else 0
    return Finding(
        f"evaluation needs {format_bytes(account.peak_bytes)} of {format_bytes(found.capacity)} on "
        f"each {found.device} with {batch.evaluation} x {tokens} tokens{beams}",
        labels,
        (f"at its peak ({account.peak_phase}), where answers are as long as they may be",),
        "take fewer samples at once (per_device_eval_batch_size), fewer beams, or shorter answers",
        sum=tuple(Term(name, size) for name, size in account.terms.items()),
        severity="warning",
    )


def _full_samples(found: "Estimate", labels: tuple[Label, ...]) -> Finding:
    from tunec.schemas.units import format_bytes

    account = found.account
    batch, evaluates = account.layout.batch, account.peak.evaluates
    what, number = ("evaluation", batch.evaluation) if evaluates else ("this", batch.micro)
    fewer = (
        "at once (per_device_eval_batch_size, 8 where it is left out), or shorten them"
        if evaluates
        else "at once and accumulate more, shorten them, or recompute activations"
    )
    return Finding(
        f"{what} needs {format_bytes(account.peak_bytes)} of {format_bytes(found.capacity)} on "
        f"each {found.device} with {number} x {_sample(account.workload)}",
        labels,
        (f"at its peak ({account.peak_phase}), where samples are as long as they may be",),
        f"take fewer samples {fewer}",
        sum=tuple(Term(name, size) for name, size in account.terms.items()),
        severity="warning",
    )


def _sample(workload: "Workload") -> str:
    """A sample in the units that it is measured in: tokens, or a denoiser's pixels."""
    data = workload.data
    if workload.architecture.kind == "diffusion":
        return f"{data.image_width}x{data.image_height} pixels"
    pictured = f", {data.image_tokens} of them a picture's" if data.image_tokens else ""
    return f"{data.sequence + data.image_tokens} tokens{pictured}"


def _of_evaluation(run: LintContext, account: "Account") -> tuple[Label, ...]:
    """Where the batch of evaluation is said, or that there is any, if it is what takes most."""
    if not account.peak.evaluates:
        return ()
    said = run.place(run.observed("batch.evaluation"))
    if said is not None:
        return (said.label("samples at once in evaluation"),)
    at = next((each for one in run.of("trainer") if (each := strategy_of(one)) is not None), None)
    number = account.layout.batch.evaluation
    return () if at is None else (at.label(f"evaluates, {number} samples at once unasked"),)


def _labels(run: LintContext, *, is_known: bool) -> tuple[Label, ...]:
    """Where the batch, the method and the sharding are said, or what else of it is known."""
    wanted = (
        ("batch.micro", "samples at once"),
        ("model.path", "the model"),
        ("adapter.kind", "what is trained"),
        ("zero.stage", "what is sharded"),
        ("data.sequence", "tokens of a sample"),
    )
    beside = (
        ("optimizer.name", "the optimizer's states"),
        ("precision.compute", "what it computes in"),
        ("batch.evaluation", "samples at once in evaluation"),
        ("activation_checkpointing.mode", "what is kept of the forward pass"),
    )
    places = _said(run, wanted) or (_said(run, beside)[:1] if is_known else [])
    return tuple(place.label(text, primary=at == 0) for at, (place, text) in enumerate(places))


def _said(run: LintContext, slots: tuple[tuple[str, str], ...]) -> list[tuple[Place, str]]:
    found = [(run.place(run.observed(slot)), text) for slot, text in slots]
    return [(place, text) for place, text in found if place is not None]
