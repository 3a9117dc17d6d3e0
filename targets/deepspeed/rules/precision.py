"""Rules about precision and loss scaling in DeepSpeed's file."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.effective import Effective
from tunec.compiler.lints.facts.lora import is_true
from tunec.compiler.lints.facts.precision import below, with_capability
from tunec.compiler.lints.facts.training_loop import is_number
from tunec.compiler.lints.rule import Finding, keys, rule
from tunec.schemas.frozen import replace

if TYPE_CHECKING:
    from tunec.schemas.hardware.profile import Device


_HIGHEST = 24
"""The largest usual exponent. fp16 ends below 2^16, and gradients of a mean loss are well below 1,
so a few powers more are usual."""


@rule("warning", "silent", consumers=("deepspeed",), reads=("deepspeed:fp16.initial_scale_power",))
def initial_loss_scale_too_high(run: LintContext) -> Iterator[Finding]:
    """Dynamic loss scaling starts at a scale at which everything overflows."""
    for place in run.each("deepspeed", "fp16.initial_scale_power"):
        power = place.value
        if isinstance(power, bool) or not isinstance(power, int) or power <= _HIGHEST:
            continue
        off = run.effective("deepspeed", "fp16.enabled").value is not True
        static = run.effective("deepspeed", "fp16.loss_scale").value not in (0, None)
        if off or static:
            continue
        skipped = power - 16
        yield Finding(
            f"the loss scale starts at 2^{power}: about {skipped} steps are skipped",
            (place.label(f"2^{power}"),),
            (
                (
                    f"fp16 ends at 65504, below 2^16, and an overflow halves the scale: {power} - "
                    f"16 = "
                    f"{skipped} halvings, each a batch whose step is thrown away"
                ),
            ),
            "use 16, the default",
        )


_POSITIVE: Final = {
    "loss_scale_window": "the number of steps is divided by it, to tell when the scale is raised",
    "min_loss_scale": "it is the floor of the scale, which can then fall to 0",
}


@rule(
    "error",
    "init",
    consumers=("deepspeed",),
    reads=keys("deepspeed", "fp16.loss_scale", *(f"fp16.{key}" for key in _POSITIVE)),
)
def loss_scale_refused(run: LintContext) -> Iterator[Finding]:
    """A number of fp16's loss scaling is refused by DeepSpeed, or stops the run."""
    for document in run.of("deepspeed"):
        static = document.get("fp16.loss_scale")
        if static is not None and is_number(static.value) and static.value < 0:
            why = "a negative scale makes training climb; 0 stands for dynamic scaling"
            yield _refused_finding(
                run, static, why, "write 0", is_known=run.runs("deepspeed>=0.18.9")
            )
        elif static is not None and isinstance(static.value, bool):
            why = "a boolean is no number; before 0.18.9 true meant 1, and false dynamic scaling"
            yield _refused_finding(
                run, static, why, "write 0", is_known=run.runs("deepspeed>=0.18.9")
            )
        elif _is_dynamic(document):
            for key, why in _POSITIVE.items():
                place = document.get(f"fp16.{key}")
                if place is not None and is_number(place.value) and place.value <= 0:
                    known = run.runs("deepspeed>=0.19.8")
                    found = _refused_finding(
                        run, place, why, "write a number of 1 or more", is_known=known
                    )
                    is_floor = key == "min_loss_scale" and known is False
                    yield replace(found, severity="note") if is_floor else found


def _is_dynamic(document: Document) -> bool:
    enabled = document.value("fp16.enabled", False)
    return enabled not in (False, None) and document.value("fp16.loss_scale", 0) == 0


def _refused_finding(
    run: LintContext, place: Place, why: str, mend: str, *, is_known: bool | None
) -> Finding:
    del run
    return Finding(
        f"`{place.path}` cannot be {place.value}",
        (place.label("refused" if is_known is not False else "accepted, but wrong"),),
        (why,),
        mend,
        consequence="step" if is_known is False else None,
    )


_SMALLEST = 2.0**-24
"""The smallest positive number in fp16."""


@rule("warning", "silent", consumers=("deepspeed",), reads=("deepspeed:fp16.loss_scale",))
def static_loss_scale(run: LintContext) -> Iterator[Finding]:
    """fp16 has a fixed loss scale."""
    for place in run.each("deepspeed", "fp16.loss_scale"):
        enabled = run.effective("deepspeed", "fp16.enabled")
        scale = place.value
        if isinstance(scale, bool) or not isinstance(scale, int | float) or scale <= 0:
            continue
        if enabled.value is not True:
            continue
        yield Finding(
            f"the loss scale is fixed at {scale:g}",
            (place.label("0 lets DeepSpeed find it"),),
            (
                (
                    f"gradients below {_SMALLEST / scale:.1e} become zero, and those above "
                    f"{65504 / scale:.3g} infinite; an overflow does not lower it"
                ),
            ),
            "set it to 0: dynamic",
            Fix((place.replaced(0),), "unsafe"),
        )


@rule(
    "warning",
    "silent",
    consumers=("transformers",),
    reads=("deepspeed:bf16.enabled", "deepspeed:fp16.enabled"),
)
def automatic_precision_off(run: LintContext) -> Iterator[Finding]:
    """DeepSpeed's file leaves the precision to the trainer, which sets none: everything is fp32."""
    both = [run.effective("deepspeed", f"{dtype}.enabled") for dtype in ("bf16", "fp16")]
    waiting = [each for each in both if _is_off_by_trainer(each)]
    if not waiting or any(each.value is not False for each in both) or _is_mixed(run):
        return
    if any(each.value is True for dtype in ("bf16", "fp16") for each in run.each("trainer", dtype)):
        return  # accelerate adds the block that the file does not have
    if run.own.declares("bf16") or run.own.declares("fp16"):
        return  # a class of the repository's own has another default
    if _is_in_its_own(run):
        return
    if run.own.shows(_IN_FP32):
        return
    place = waiting[0].place
    if place is None:
        return
    others = [each.place.label("", primary=False) for each in waiting[1:] if each.place]
    is_written = any(any(run.each("trainer", each)) for each in ("bf16", "fp16"))
    yield Finding(
        "auto becomes false: the run is fp32",
        (place.label("filled from the trainer, which says neither bf16 nor fp16"), *others),
        ("weights, gradients and communication take twice the bytes, without tensor cores",),
        "set bf16: true in the trainer's file, or fp16: true on older hardware",
        severity="note" if is_written else None,  # as false
    )


_IN_FP32: Final = re.compile(r"\bM?T5For\w+")
"""Models that overflow in fp16, for which fp32 is intended: transformers 5.23.0
models/t5/modeling_t5.py `_keep_in_fp32_modules`; `T5Block.forward` clamps infinite values."""


def _is_in_its_own(run: LintContext) -> bool:
    """Whether LLaMA-Factory loads a frozen base in the precision of its checkpoint.

    llamafactory 0.9.3 to 0.9.5 model/patcher.py `patch_config`: `infer_optim_dtype`, where neither
    is set. DeepSpeed's stage 3 makes the weights itself, in fp32.
    """
    is_frozen = any(each.value == "lora" for each in run.each("llamafactory", "finetuning_type"))
    return is_frozen and run.effective("deepspeed", "zero_optimization.stage").value != 3


def _is_off_by_trainer(found: Effective) -> bool:
    return found.source == "filled" and found.value is False


def _is_mixed(run: LintContext) -> bool:
    """Whether the launcher or accelerate's file turns on mixed precision."""
    return any(
        each.value in ("bf16", "fp16", "fp8")
        for kind, key in (("accelerate", "mixed_precision"), ("launch", "flags.mixed_precision"))
        for each in run.each(kind, key)
    )


@rule("error", "init", consumers=("deepspeed",), reads=("deepspeed:amp.enabled",))
def amp_beside_zero(run: LintContext) -> Iterator[Finding]:
    """DeepSpeed's amp block is on beside ZeRO or a 16-bit mode."""
    for amp in run.each("deepspeed", "amp.enabled"):
        if amp.value is not True or run.runs("deepspeed<0.19") is not True:
            continue
        stage = run.effective("deepspeed", "zero_optimization.stage")
        if isinstance(stage.value, int) and stage.value > 0 and stage.place is not None:
            other, word = stage.place, f"ZeRO stage {stage.value}"
        else:
            half = next((e for e in _half(run) if e.value is True), None)
            if half is None or half.place is None:
                continue
            other, word = half.place, half.place.path.partition(".")[0]
        yield Finding(
            f"amp cannot be combined with {word}",
            (amp.label("apex amp"), other.label("", primary=False)),
            ("apex's amp wraps a plain optimizer; DeepSpeed 0.19 removed it",),
            "remove amp, and use bf16 or fp16",
        )


def _half(run: LintContext) -> list[Effective]:
    return [run.effective("deepspeed", f"{dtype}.enabled") for dtype in ("fp16", "bf16")]


_KEYS = (
    "fp16.fp16_master_weights_and_grads",
    "bf16.bf16_master_weights_and_grads",
    "bf16.bf16_optimizer_states",
)
_ALL_STAGES = "deepspeed>=0.18"


@rule("error", "init", consumers=("deepspeed",), reads=keys("deepspeed", *_KEYS))
def half_master_weights_without_zero(run: LintContext) -> Iterator[Finding]:
    """16-bit master weights are requested, but the ZeRO stage does not support them."""
    stage = run.effective("deepspeed", "zero_optimization.stage")
    for key in _KEYS:
        for place in run.each("deepspeed", key):
            if is_true(place.value) and stage.known:
                yield from _at(run, place, stage.value, stage.place)
    yield from _states_alone(run)


def _at(run: LintContext, place: Place, stage: object, where: Place | None) -> Iterator[Finding]:
    old = place.path.startswith("fp16") and run.runs(_ALL_STAGES) is False
    allowed = (2,) if old else (1, 2, 3)
    if stage in allowed or not isinstance(stage, int):
        return
    words = "stage 2" if old else "stages 1 to 3"
    yield Finding(
        f"{place.path.rpartition('.')[2]} at ZeRO stage {stage}",
        (place.label("refused"), *also(where)),
        (f"DeepSpeed supports it at {words}",),
        f"use {words.replace('stages', 'one of the stages')}, or remove it",
    )


def _states_alone(run: LintContext) -> Iterator[Finding]:
    """Optimizer states are in bf16, but the master weights are not."""
    for place in run.each("deepspeed", "bf16.bf16_optimizer_states"):
        weights = place.document.value("bf16.bf16_master_weights_and_grads")
        if is_true(place.value) and not is_true(weights):
            yield Finding(
                "bf16_optimizer_states needs bf16_master_weights_and_grads",
                (place.label("refused"),),
                (),
                "set both, or neither",
            )


@rule("error", "init", consumers=("deepspeed",), reads=("deepspeed:fp16.enabled",), hardware=True)
def fp16_refused_by_deepspeed(run: LintContext) -> Iterator[Finding]:
    """DeepSpeed refuses fp16 on the run's devices."""
    device = below(run, 7)
    enabled = run.effective("deepspeed", "fp16.enabled")
    if device is None or enabled.value is not True or enabled.place is None:
        return
    if run.runs("deepspeed<0.13") or _is_let_pass(run, device):
        return
    yield Finding(
        f"DeepSpeed refuses fp16 on {with_capability(device)}",
        (enabled.place.label("needs 7.0"),),
        (
            (
                "DeepSpeed counts fp16 on 6.x as deprecated: `Type fp16 is not supported on your "
                "device`; DS_ALLOW_DEPRECATED_FP16=1 lets 6.x pass"
            ),
        ),
        "export DS_ALLOW_DEPRECATED_FP16=1 on compute capability 6.x, or train in fp32",
    )


def _is_let_pass(run: LintContext, device: "Device") -> bool:
    """Whether an environment variable, read from 0.13.2 on, allows compute capability 6.x."""
    allowed = run.said("launch", "environment.DS_ALLOW_DEPRECATED_FP16")
    if allowed is None or str(allowed.value) != "1" or run.runs("deepspeed<0.13.2"):
        return False
    return (device.compute_capability or (0, 0))[0] == 6
