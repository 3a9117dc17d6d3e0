"""Training in bf16 and tf32, and loss scalers and launchers beside it."""

from collections.abc import Iterator, Sequence
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix, Label
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Place
from tunec.compiler.lints.facts.lora import has_adapter
from tunec.compiler.lints.facts.precision import (
    LAUNCHED,
    LOADED,
    device_name,
    loaded_in,
    on_deepspeed,
    turned_on,
)
from tunec.compiler.lints.rule import Consequence, Finding, rule
from tunec.schemas.frozen import replace

_HALF_STEP: Final = 2.0**-9
"""A bf16 number changes only if at least this share of it is added: bf16 has 8 bits of precision,
and a tie goes to the even neighbour."""
_TYPICAL: Final = 0.02
"""Standard deviation with which transformers initialises weights (`initializer_range`)."""
_ROUNDS_UP: Final = ("adamw_bf16", "stochastic", "optimi", "kahan", "anyprecision", "apollo")
"""Optimizers that round differently; APOLLO's steps are several times the rate: zhuhanqing/APOLLO
apollo_torch/apollo.py scales the gradient by the root of `scale`, 32 in LLaMA-Factory."""


@rule(
    "warning",
    "silent",
    consumers=("torch",),
    reads=("llamafactory:pure_bf16", "axolotl:bfloat16", *LOADED),
)
def bf16_updates_lost(run: LintContext) -> Iterator[Finding]:
    """bf16 weights have no fp32 copies, and the learning rate is so low that updates are lost."""
    weights = _pure(run)
    rate = run.effective("trainer", "learning_rate")
    if weights is None or not isinstance(rate.value, int | float) or rate.value <= 0:
        return
    least = rate.value / _HALF_STEP
    if least >= _TYPICAL or _keeps_copies(run) or _rounds_well(run) or not _is_started(run):
        return
    label: list[Label] = [weights.label("trained in bf16", primary=rate.place is None)]
    if rate.place is not None:
        label.insert(0, rate.place.label("a step of Adam is about this large"))
    yield Finding(
        f"at learning rate {rate.value:g} weights above {least:.2g} do not move in bf16",
        tuple(label),
        (
            (
                f"bf16 has 8 bits: what is less than 1/512 of a weight rounds away; {rate.value:g} "
                f"x "
                f"512 = {least:.2g}, and weights are around {_TYPICAL}"
            ),
        ),
        "load what is trained in fp32 and compute in bf16, or take an optimizer that rounds "
        "stochastically",
    )


def _pure(run: LintContext) -> Place | None:
    """The place that makes the trained weights bf16."""
    if has_adapter(run) or any(each.value is False for each in run.each("trainer", "do_train")):
        return None
    for kind, key in (("llamafactory", "pure_bf16"), ("axolotl", "bfloat16")):
        for place in run.each(kind, key):
            if place.value is True:
                return place
    return next(loaded_in(run, "bf16"), None)


def _keeps_copies(run: LintContext) -> bool:
    """Whether DeepSpeed keeps fp32 copies, even by an unread file, or FSDP may (its own rule)."""
    fsdp = any(each.value == "FSDP" for each in run.each("accelerate", "distributed_type"))
    named = [run.said(kind, "deepspeed") for kind in ("trainer", "axolotl")]
    by_file = any(each is not None and each.value for each in named)
    is_sharded = fsdp or run.said("trainer", "fsdp", "fsdp_config") is not None
    return on_deepspeed(run) or by_file or is_sharded


def _is_started(run: LintContext) -> bool:
    """Whether the files show what starts the run: TRL's recipes leave the engine to accelerate."""
    is_own = any(run.of(kind) for kind in ("llamafactory", "axolotl"))
    by_launch = any(each.get("flags.config_file") is None for each in run.of("launch"))
    return is_own or by_launch or bool(run.of("accelerate"))


def _rounds_well(run: LintContext) -> bool:
    if any(each.value is True for each in run.each("llamafactory", "use_apollo")):
        return True
    name = run.effective("trainer", "optim").value
    return isinstance(name, str) and any(word in name for word in _ROUNDS_UP)


_KEYS: Final = (
    ("trainer", "bf16"),
    ("hf", "bf16"),
    ("trainer", "bf16_full_eval"),
    ("llamafactory", "pure_bf16"),
    ("deepspeed", "bf16.enabled"),
    ("deepspeed", "bfloat16.enabled"),
    ("accelerate", "mixed_precision"),
    ("launch", "flags.mixed_precision"),
    ("launch", "environment.ACCELERATE_MIXED_PRECISION"),
    ("simpletuner", "mixed_precision"),
    ("sd-scripts", "mixed_precision"),
    ("musubi-tuner", "mixed_precision"),
    ("ai-toolkit", "train.dtype"),
    ("axolotl", "bf16"),
    ("diffusers", "mixed_precision"),
    ("llama-cookbook", "fsdp_config.pure_bf16"),
)

_EMULATING: Final = "torch>=2.4"
"""torch 2.4.1 to 2.13.0 cuda/__init__.py `is_bf16_supported`: `including_emulation` is True by
default, and a V100 can hold a tensor of bf16."""
_ENGINES: Final = ("deepspeed", "sat")
_ACCELERATED: Final = (
    "accelerate",
    "launch",
    "simpletuner",
    "sd-scripts",
    "musubi-tuner",
    "diffusers",
)
_REFUSING: Final = {
    **dict.fromkeys(_ENGINES, "DeepSpeed"),
    **dict.fromkeys(_ACCELERATED, "accelerate"),
    **dict.fromkeys(("ai-toolkit", "llama-cookbook"), ""),
}
"""The package that checks the device, by kind of file; an empty name: torch only. For all other
kinds the Trainer does. accelerate 0.30.1 to 1.15.0 accelerator.py `Accelerator.__init__`:
ValueError."""


@rule(
    "error",
    "parse",
    consumers=(
        *(
            "transformers",
            "deepspeed",
            "accelerate",
            "simpletuner",
            "diffusers",
            "sd-scripts",
            "musubi-tuner",
        ),
        "ai-toolkit",
    ),
    reads=(
        *(f"{kind}:{key}" for kind, key in _KEYS),
        *(f"{kind}:*" for kind in TRL),
        "llama-cookbook:*",
    ),
    hardware=True,
)
def bf16_without_hardware(run: LintContext) -> Iterator[Finding]:
    """bf16 on devices without bf16 arithmetic units."""
    device = run.environment.weakest
    if device is None or device.supports("bf16"):
        return
    places = turned_on(run, _KEYS, "bf16")
    if not places:
        yield from _by_default(run, device_name(device))
        yield from _loaded(run, device_name(device))
        return
    labels = [each.label("bf16", primary=at == 0) for at, each in enumerate(places)]
    yield Finding(
        f"{device_name(device)} has no bf16 arithmetic",
        tuple(labels),
        tuple(_notes(run, places)),
        "use fp16 with fp32 master weights, or hardware of compute capability 8.0 and more",
        consequence=_when(run, places),
    )


def _notes(run: LintContext, places: Sequence[Place]) -> Iterator[str]:
    """Notes on the packages that refuse bf16 for these files, and on torch's own check."""
    is_emulated = run.runs(_EMULATING)
    if is_emulated is not False:
        yield "torch counts emulation as support from 2.4 on: the run continues many times slower"
    kinds = () if is_emulated else (each.document.kind for each in places)
    before = "" if is_emulated is False else "before torch 2.4, "
    for name in dict.fromkeys(_REFUSING.get(kind, "transformers") for kind in kinds):
        if name:
            yield f"{before}{name} refuses it, as torch says that it is unsupported"


def _when(run: LintContext, places: Sequence[Place]) -> Consequence | None:
    """The moment of the failure: DeepSpeed checks when its engine is made, others on reading.

    All of them use torch's check, which counts emulation as support from 2.4 on: where no release
    of torch is known, the run is taken to continue.
    """
    if run.runs(_EMULATING) is not False:
        return "slow"
    return "init" if places and all(each.document.kind in _ENGINES for each in places) else None


def _by_default(run: LintContext, device: str) -> Iterator[Finding]:
    """Report TRL's files that set no precision, for which TRL turns bf16 on."""
    for document in run.of(*TRL):
        is_own = document.target is not None and document.target.name == "trl"
        is_said = any(document.get(key) or key in document.unknown for key in ("bf16", "fp16"))
        first = next(iter(document.found.values()), None)
        if document.is_view or not is_own or is_said or first is None:
            continue
        if run.runs("trl>=0.20"):
            yield Finding(
                f"{device} has no bf16 arithmetic, and TRL turns bf16 on by default",
                (first.label("bf16 is left out, and is true"),),
                ("bf16 is `not fp16` where it is left out, from TRL 0.20 on",),
                "write fp16: true, or bf16: false",
                consequence=_when(run, ()),
            )


def _loaded(run: LintContext, device: str) -> Iterator[Finding]:
    """Report llama-cookbook's files without use_fp16, whose weights are loaded in bf16."""
    for document in run.of("llama-cookbook"):
        first = document.get("model_name") or next(iter(document.found.values()), None)
        if first is not None and "use_fp16" not in {*document.keys, *document.unknown}:
            yield Finding(
                f"{device} has no bf16 arithmetic, and llama-cookbook loads the model in bf16",
                (first.label("bf16, where use_fp16 is left out"),),
                ("nothing refuses it: torch emulates bf16, many times slower",),
                "write --use_fp16",
                severity="warning",
                consequence="slow",
            )


@rule(
    "error",
    "parse",
    consumers=("transformers", "diffusers"),
    reads=("trainer:tf32", "diffusers:allow_tf32"),
    hardware=True,
)
def tf32_without_hardware(run: LintContext) -> Iterator[Finding]:
    """TF32 on devices that do not support it."""
    device = run.environment.weakest
    if device is None or (device.vendor == "nvidia" and device.supports("tf32")):
        return
    for place in turned_on(run, (("trainer", "tf32"), ("hf", "tf32")), "tf32"):
        yield Finding(
            f"{device_name(device)} has no TF32"
            if device.vendor == "nvidia"
            else f"TF32 is requested on {device_name(device)}, where torch has no CUDA",
            (place.label("refused"),),
            (),
            "remove it",
            Fix((place.removed(),), "safe") if place.document.format != "shell" else None,
        )
    for place in run.each("diffusers", "allow_tf32"):
        yield Finding(
            f"allow_tf32 does nothing on {device_name(device)}",
            (place.label("no TF32"),),
            ("matrices are multiplied in fp32 as before",),
            "remove it",
            severity="warning",
            consequence="silent",
        )


_OWNERS = ("diffusers", "simpletuner", "sd-scripts", "musubi-tuner")
_DIFFERS_OTHER = {"bf16": "fp16", "fp16": "bf16"}


@rule(
    "warning",
    "silent",
    consumers=("accelerate", "transformers", "diffusers", "simpletuner", "sd-scripts"),
    reads=LAUNCHED,
)
def launcher_precision_differs(run: LintContext) -> Iterator[Finding]:
    """The launcher and the trainer set different precisions."""
    yield from _of_examples(run)
    if on_deepspeed(run):
        return
    flag = run.said("launch", "flags.mixed_precision")
    file = run.said("accelerate", "mixed_precision")
    if flag is not None and file is not None and flag.value != file.value:
        yield _finding(file, flag, "the flag of `accelerate launch` wins")
    launched = flag or file
    if launched is None or str(launched.value) not in _DIFFERS_OTHER:
        return
    other = next(
        (e for e in run.each("trainer", _DIFFERS_OTHER[launched.value]) if e.value is True), None
    )
    if other is not None:
        found = _finding(
            launched, other, "the Trainer sets ACCELERATE_MIXED_PRECISION from its own settings"
        )
        is_lost = other.path == "fp16"  # bf16 in place of fp16 is what the trainer's file says
        yield found if is_lost else replace(found, severity="note")
        return
    for said in run.each("trainer", launched.value):
        if said.value is False:
            yield _finding(
                said, launched, "the launcher's setting holds where the Trainer's are off"
            )


def _of_examples(run: LintContext) -> Iterator[Finding]:
    """Report a precision that a script of diffusers or SimpleTuner passes over the launcher's.

    A launcher's `no`, its default, is a leftover: the script computes as it was told to.
    """
    launched = run.said("launch", "flags.mixed_precision") or run.said(
        "accelerate", "mixed_precision"
    )
    owned = (own for kind in _OWNERS for own in run.each(kind, "mixed_precision"))
    for own in owned:
        if launched is not None and _word(launched) != _word(own):
            found = _finding(launched, own, "the script gives its own word to Accelerator")
            yield replace(found, severity="note") if _word(launched) == "no" else found


def _finding(lost: Place, held: Place, note: str) -> Finding:
    return Finding(
        f"{lost.path} {_word(lost)} does nothing: {held.document.name} sets {held.path} "
        f"{_word(held)}",
        (lost.label("without effect"), held.label("in force", primary=False)),
        (note,),
        "write the same precision in both",
    )


def _word(place: Place) -> str:
    return str(place.value).lower()


@rule("error", "step", consumers=("torch", "trl"), reads=("trainer:fp16",))
def loss_scaling_over_bf16(run: LintContext) -> Iterator[Finding]:
    """fp16 with loss scaling, but the trained weights are bf16."""
    scaled = run.said("trainer", "fp16")
    if scaled is None or scaled.value is not True or on_deepspeed(run):
        return
    if run.value("quantization.format", "none") not in (None, "none"):
        yield from _adapters(run, scaled)
        return
    for place in loaded_in(run, "bf16"):
        is_adapted = has_adapter(run)
        is_whole = place.document.kind in (*TRL, "model")
        if is_adapted and run.runs("peft>=0.12") is not False:
            continue
        yield _scaling_finding(place, scaled, "trained in bf16", is_certain=is_whole or is_adapted)


def _adapters(run: LintContext, scaled: Place) -> Iterator[Finding]:
    """Report fp16 beside a quantised model, whose adapters TRL converts to bf16."""
    bits = run.said("trainer", "load_in_4bit", "load_in_8bit")
    if bits is None or bits.value is not True or not run.of(*TRL):
        return
    if run.runs("trl>=0.26") is not False:
        label = "TRL's trainer trains adapters in bf16 over it"
        is_certain = run.runs("trl>=0.26") is True and not _may_train_without(run)
        yield _scaling_finding(bits, scaled, label, is_certain=is_certain)


def _may_train_without(run: LintContext) -> bool:
    """Whether a script's own arguments lie beside TRL's, so that the Trainer itself may train."""
    return bool(run.of("hf"))


def _scaling_finding(place: Place, scaled: Place, label: str, *, is_certain: bool) -> Finding:
    return Finding(
        "fp16 cannot scale the loss of weights that are trained in bf16",
        (place.label(label), scaled.label("scales the loss", primary=False)),
        (
            (
                "the first step fails with `_amp_foreach_non_finite_check_and_unscale_cuda not "
                "implemented for BFloat16`"
            ),
        ),
        "write bf16: true instead of fp16, or load in float32 what is trained",
        certain=is_certain,
    )
