"""DeepSpeed's file leaves the precision to the trainer, which has none: all is fp32."""

from collections.abc import Iterator

from tunec.compiler.lints.effective import Effective
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
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


def _is_mixed(run: Run) -> bool:
    """The launcher may turn it on through its own word."""
    return any(
        each.value in ("bf16", "fp16", "fp8")
        for kind, key in (("accelerate", "mixed_precision"), ("launch", "flags.mixed_precision"))
        for each in run.each(kind, key)
    )


RULE = Rule(
    name="automatic-precision-off",
    severity="warning",
    consequence="silent",
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
    check=_check,
)
