"""Loss scaling."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document, Place
from tunec.compiler.lints.effective import Effective
from tunec.compiler.lints.facts.lora import has_adapter
from tunec.compiler.lints.facts.precision import loaded_in, on_deepspeed
from tunec.compiler.lints.facts.training_loop import is_number
from tunec.compiler.lints.rule import Finding, keys, rule

_HIGHEST = 24
"""fp16 ends below 2^16, and gradients of a mean loss are well below 1: some steps more are "
"usual."""


@rule(
    "initial-loss-scale-too-high",
    "warning",
    "silent",
    consumers=("deepspeed",),
    sources=(
        "deepspeed 0.14.5 to 0.19.8 runtime/fp16/loss_scaler.py `DynamicLossScaler.update_scale`: "
        "an overflow halves, `hysteresis` overflows later at first"
    ),
    reads=("deepspeed:fp16.initial_scale_power",),
)
def initial_loss_scale_too_high(run: LintContext) -> Iterator[Finding]:
    """Dynamic loss scaling that starts where everything overflows."""
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
    "loss-scale-refused",
    "error",
    "init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.18.9, 0.19.8 runtime/precision_config.py `_validate_loss_scale`: must be "
            ">= 0; 0.19.8 `_validate_dynamic_loss_scale_params`: loss_scale_window, min_loss_scale "
            "must be > 0; before, fp16/loss_scaler.py `DynamicLossScaler.update_scale`: % "
            "scale_window"
        ),
        "deepspeedai/DeepSpeed#7889",
    ),
    reads=keys("deepspeed", "fp16.loss_scale", *(f"fp16.{key}" for key in _POSITIVE)),
)
def loss_scale_refused(run: LintContext) -> Iterator[Finding]:
    """A number of fp16's loss scaling that DeepSpeed does not take, or that ends the run."""
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
                    yield _refused_finding(
                        run, place, why, "write a number of 1 or more", is_known=known
                    )


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


@rule(
    "loss-scaling-over-bf16",
    "error",
    "step",
    consumers=("torch", "trl"),
    sources=(
        (
            "torch 2.13.0 amp/grad_scaler.py `GradScaler._unscale_grads_`: "
            "_amp_foreach_non_finite_check_and_unscale_, on CUDA"
        ),
        "pytorch/pytorch#127176, huggingface/trl#4901, QwenLM/Qwen-VL#372",
        (
            "trl 0.26.2 to 1.16.0 trainer/sft_trainer.py: adapters of a quantised model are cast "
            "to bfloat16"
        ),
    ),
    reads=("trainer:fp16",),
)
def loss_scaling_over_bf16(run: LintContext) -> Iterator[Finding]:
    """fp16 with loss scaling over trained weights that are bf16."""
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
    """TRL makes the adapters of a quantised model bf16."""
    bits = run.said("trainer", "load_in_4bit", "load_in_8bit")
    if bits is None or bits.value is not True or not run.of(*TRL):
        return
    if run.runs("trl>=0.26") is not False:
        yield _scaling_finding(
            bits,
            scaled,
            "TRL trains adapters in bf16 over it",
            is_certain=run.runs("trl>=0.26") is True,
        )


def _scaling_finding(place: Place, scaled: Place, label: str, *, is_certain: bool) -> Finding:
    return Finding(
        "fp16 with loss scaling over trained weights in bf16",
        (place.label(label), scaled.label("scales the loss", primary=False)),
        (
            (
                "the first step ends in `_amp_foreach_non_finite_check_and_unscale_cuda not "
                "implemented for BFloat16`"
            ),
        ),
        "write bf16: true instead of fp16, or load in float32 what is trained",
        certain=is_certain,
    )


_SMALLEST = 2.0**-24
"""The smallest number of fp16 above zero."""


@rule(
    "static-loss-scale",
    "warning",
    "silent",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/precision_config.py, before 0.17 "
            "runtime/config.py: loss_scale 0 is dynamic; runtime/fp16/loss_scaler.py "
            "`LossScaler`: never changes"
        ),
        "IEEE 754 binary16: smallest subnormal 2^-24, largest 65504",
    ),
    reads=("deepspeed:fp16.loss_scale",),
)
def static_loss_scale(run: LintContext) -> Iterator[Finding]:
    """fp16 with a loss scale that never moves."""
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
    "automatic-precision-off",
    "warning",
    "silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 integrations/deepspeed.py `trainer_config_process`: "
            "fp16.enabled and bf16.enabled are filled from the arguments"
        ),
        "zai-org/GLM-4 finetune_demo configs at 3f79b54: ds_zero_2.json with auto, no bf16",
        (
            "accelerate 0.30.1 to 1.15.0 utils/dataclasses.py `set_mixed_precision` of the "
            "DeepSpeedPlugin: the block of the trainer's dtype is added where it is not there"
        ),
    ),
    reads=("deepspeed:bf16.enabled", "deepspeed:fp16.enabled"),
)
def automatic_precision_off(run: LintContext) -> Iterator[Finding]:
    """DeepSpeed's file leaves the precision to the trainer, which has none: all is fp32."""
    both = [run.effective("deepspeed", f"{dtype}.enabled") for dtype in ("bf16", "fp16")]
    waiting = [each for each in both if _is_off_by_trainer(each)]
    if not waiting or any(each.value is not False for each in both) or _is_mixed(run):
        return
    if any(each.value is True for dtype in ("bf16", "fp16") for each in run.each("trainer", dtype)):
        return  # accelerate adds the block that the file does not have
    place = waiting[0].place
    if place is None:
        return
    others = [each.place.label("", primary=False) for each in waiting[1:] if each.place]
    yield Finding(
        "auto comes to false: the run is fp32",
        (place.label("filled from the trainer, which says neither bf16 nor fp16"), *others),
        ("weights, gradients and communication take twice the bytes, without tensor cores",),
        "set bf16: true in the trainer's file, or fp16: true on older hardware",
    )


def _is_off_by_trainer(found: Effective) -> bool:
    return found.source == "filled" and found.value is False


def _is_mixed(run: LintContext) -> bool:
    """The launcher may turn it on through its own word."""
    return any(
        each.value in ("bf16", "fp16", "fp8")
        for kind, key in (("accelerate", "mixed_precision"), ("launch", "flags.mixed_precision"))
        for each in run.each(kind, key)
    )
