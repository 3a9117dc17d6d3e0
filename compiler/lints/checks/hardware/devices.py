"""Devices that torch does not support or that differ, and features that devices do not have."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tunec.compiler.diagnostics.diagnostic import Fix, Label
from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Place
from tunec.compiler.lints.facts.precision import below, processes, turned_on, with_capability
from tunec.compiler.lints.rule import ALWAYS, Consequence, Finding, keys, rule
from tunec.schemas.torch_builds import BUILDS, INDEX, Build, builds_of, spelled

if TYPE_CHECKING:
    from tunec.schemas.hardware.profile import Device

_BLACKWELL: Final = (10, 0)


class _Newer(NamedTuple):
    """The first torch with kernels for a generation of devices, and the wheels that have them."""

    release: str
    wheels: str


_OF_BLACKWELL: Final = _Newer("2.7", "CUDA 12.8")
_OF_CDNA_4: Final = _Newer("2.10", "ROCm 7.0")


@rule("error", "init", consumers=("torch",), reads=ALWAYS, hardware=True)
def device_newer_than_torch(run: LintContext) -> Iterator[Finding]:
    """A device is newer than the torch that runs on it."""
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
    """The requirements of a device that older wheels do not meet; None if there are none."""
    if device.gfx == "gfx950":
        return _OF_CDNA_4
    is_blackwell = device.compute_capability and device.compute_capability >= _BLACKWELL
    return _OF_BLACKWELL if is_blackwell else None


@rule("error", "init", consumers=("torch",), reads=ALWAYS, hardware=True)
def device_older_than_torch(run: LintContext) -> Iterator[Finding]:
    """The builds of the torch in use no longer have kernels for a device."""
    device = run.environment.weakest
    documents = [each for each in run.documents if not each.is_view]
    torch = run.release("torch")
    named = str(torch.version) if torch.is_named else ""
    if device is None or device.compute_capability is None or not documents:
        return
    known = _builds(named)
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


def _builds(named: str) -> tuple[Build, ...]:
    """The CUDA builds of a release, PyPI's first; only one if the version names a build."""
    local = named.partition("+")[2]
    every = (each for each in builds_of(named) if each.vendor == "nvidia")
    return tuple(each for each in every if local in ("", each.name))


def _is_newer(capability: tuple[int, int]) -> bool:
    """Whether later builds are the fix, which `device-newer-than-torch` reports."""
    return not any(each.runs_on("nvidia", capability) for each in BUILDS[:1])


def _older(capability: tuple[int, int]) -> str:
    found = next(each for each in reversed(BUILDS) if each.runs_on("nvidia", capability))
    return f"use torch {found.version}, from {INDEX}/{found.name}"


@rule("warning", "slow", consumers=("torch",), reads=("slot:parallel.world",), hardware=True)
def unequal_devices(run: LintContext) -> Iterator[Finding]:
    """Devices with different amounts of memory take part in one data parallel run."""
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


_PATCHED: Final = re.compile(r"(^|/)(llava|fastchat)/train/train_mem\.py$")
"""Scripts that add FlashAttention themselves."""
_MECHANISM: Final = re.compile(r"flash-attn(?:-([234]))?(?:-varlen)?(?:-hub)?\Z")
_HOPPER: Final = (9, 0)
_ASKS: Final = "simpletuner>=4.1"
_IMPLEMENTATIONS: Final = ("attn_implementation", "model_init_kwargs.attn_implementation")
_LEAST: Final = {"flash_attention_2": (8, 0), "flash_attention_3": (9, 0)}


@rule(
    "error",
    "step",
    consumers=("transformers",),
    reads=(
        *("simpletuner:attention_mechanism", "slot:attention.implementation", "launch:script"),
        *keys("model|trainer|axolotl", *_IMPLEMENTATIONS),
    ),
    hardware=True,
)
def flash_attention_without_hardware(run: LintContext) -> Iterator[Finding]:
    """FlashAttention on devices that it has no kernels for."""
    yield from _xformers(run)
    found = _asked_kernel(run)
    if found is None:
        return
    word, place = found
    device = below(run, *_LEAST[word])
    if device is None:
        return
    least = ".".join(map(str, _LEAST[word]))
    is_word = place.value == word
    yield Finding(
        f"{with_capability(device)} has no kernels of {word}",
        (place.label(f"needs {least}"),),
        ("the first forward pass fails with `FlashAttention only supports Ampere GPUs or newer`",),
        "use sdpa: torch picks what the device supports"
        if place.path != "script"
        else "start train.py, or train_xformers.py, of the same folder",
        Fix((place.replaced("sdpa"),), "safe") if is_word else None,
    )


def _xformers(run: LintContext) -> Iterator[Finding]:
    """Report xformers in SimpleTuner, which checks the device and refuses it from Hopper on."""
    device = run.environment.weakest
    newest = (device.compute_capability or (0, 0)) if device is not None else (0, 0)
    for at in run.each("simpletuner", "attention_mechanism"):
        if device is None or at.value != "xformers" or newest < _HOPPER:
            continue
        if run.runs(_ASKS) is not False:
            yield Finding(
                f"SimpleTuner takes no xformers on {with_capability(device)}",
                (at.label("refused"),),
                ("xformers is not supported on GPUs with compute capability 9.0+",),
                "use diffusers: torch picks what the device supports",
                Fix((at.replaced("diffusers"),), "safe"),
                consequence="parse",
            )


def _named(value: object) -> str | None:
    """The implementation that a word of SimpleTuner's `attention_mechanism` requests."""
    found = _MECHANISM.match(str(value))
    return None if found is None else f"flash_attention_{found[1] or 2}"


def _asked_kernel(run: LintContext) -> tuple[str, Place] | None:
    for each in run.each("simpletuner", "attention_mechanism"):
        word = _named(each.value)
        if word in _LEAST:
            return str(word), each
    observed = run.observed("attention.implementation")
    place = run.place(observed)
    if observed is not None and place is not None and observed.value in _LEAST:
        return str(observed.value), place
    for kind in ("model", *TRL, "hf", "axolotl"):
        for key in _IMPLEMENTATIONS:
            for each in run.each(kind, key):
                if isinstance(each.value, str) and each.value in _LEAST:
                    return each.value, each
    started = (each.get("script") for each in run.of("launch"))
    patched = (at for at in started if at is not None and _PATCHED.search(at.first_word))
    return next((("flash_attention_2", at) for at in patched), None)


_FP8_KEYS: Final[tuple[tuple[str, str, tuple[Any, ...]], ...]] = (
    ("accelerate", "mixed_precision", ("fp8",)),
    ("launch", "flags.mixed_precision", ("fp8",)),
    ("simpletuner", "mixed_precision", ("fp8",)),
    ("simpletuner", "base_model_precision", ("fp8-torchao",)),
    ("llamafactory", "fp8", (True,)),
    ("axolotl", "fp8", (True,)),
)


@rule(
    "error",
    "step",
    consumers=("torch", "accelerate"),
    reads=tuple(f"{kind}:{key}" for kind, key, _ in _FP8_KEYS),
    hardware=True,
)
def fp8_without_hardware(run: LintContext) -> Iterator[Finding]:
    """fp8 on devices whose tensor cores do not support it."""
    device = below(run, 8, 9)
    if device is None:
        return
    for kind, key, words in _FP8_KEYS:
        for place in run.each(kind, key):
            if any(place.value is word or place.value == word for word in words):
                yield Finding(
                    f"{with_capability(device)} has no fp8 tensor cores",
                    (place.label("needs 8.9"),),
                    ("the first scaled product fails: torch._scaled_mm needs 8.9 (Ada) or 9.0",),
                    "use bf16 where the device has it, else fp16",
                    consequence=_parsed(run) if kind == "axolotl" else None,
                )


def _parsed(run: LintContext) -> Consequence | None:
    return None if run.runs("axolotl>=0.13") is False else "parse"


_ONE_PRODUCT: Final = "bitsandbytes>=0.45"
_TRANSFORMERS: Final = "transformers>=5"
"""Releases that accept no bitsandbytes before 0.46.1."""
_MIXED: Final = (
    "bitsandbytes before 0.45 falls back to fp16 products; under autocast the backward pass then "
    "mixes dtypes: `expected mat1 and mat2 to have the same dtype, but got: c10::Half != float`"
)
_SLOW: Final = (
    "bitsandbytes 0.45 and later have one product for all devices, and say of older ones: Only "
    "slow 8-bit matmul is supported"
)


@rule(
    "error", "step", consumers=("transformers",), reads=("slot:quantization.format",), hardware=True
)
def int8_without_hardware(run: LintContext) -> Iterator[Finding]:
    """LLM.int8() on devices without int8 tensor cores."""
    found = run.observed("quantization.format")
    place, device = run.place(found), below(run, 7, 5)
    if found is None or found.value != "int8" or place is None or device is None:
        return
    if place.document.kind == "simpletuner":
        return
    is_slow = _has_one_product(run)
    yield Finding(
        f"{with_capability(device)} has no int8 tensor cores for LLM.int8()",
        (place.label("needs 7.5"),),
        (_SLOW,) if is_slow else (_MIXED, *((_SLOW,) if is_slow is None else ())),
        "use 4 bits, which every device can expand, or an fp16 base",
        severity=None if is_slow is False and _is_in_fp16(run) else "warning",
        consequence="slow" if is_slow else None,
    )


def _has_one_product(run: LintContext) -> bool | None:
    """Whether bitsandbytes multiplies the same way on every device; None if it is unknown."""
    if run.runs(_TRANSFORMERS) is True:
        return True
    return run.runs(_ONE_PRODUCT)


def _is_in_fp16(run: LintContext) -> bool:
    if run.value("precision.compute") == "fp16":
        return True
    return any(where(each, "use_fp16") for each in run.of("llama-cookbook"))


@rule(
    "error",
    "init",
    consumers=("trl",),
    reads=("trainer:use_vllm", "axolotl:trl.use_vllm"),
    hardware=True,
)
def vllm_without_hardware(run: LintContext) -> Iterator[Finding]:
    """vLLM on devices that it does not support."""
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


_COMPILE_KEYS: Final = (
    ("trainer", "torch_compile"),
    ("axolotl", "torch_compile"),
    ("trainer", "use_liger_kernel"),
    ("llamafactory", "enable_liger_kernel"),
    ("axolotl", "liger_rms_norm"),
)


@rule(
    "error",
    "step",
    consumers=("torch",),
    reads=tuple(f"{kind}:{key}" for kind, key in _COMPILE_KEYS),
    hardware=True,
)
def compile_without_hardware(run: LintContext) -> Iterator[Finding]:
    """torch.compile on devices that Triton cannot generate code for."""
    device = below(run, 7)
    if device is None:
        return
    for place in turned_on(run, _COMPILE_KEYS, ""):
        yield Finding(
            f"{with_capability(device)} is too old for Triton",
            (place.label("needs 7.0"),),
            ("Found GPU which is too old to be supported by the triton GPU compiler",),
            "leave it out",
        )
