"""DeepSpeed's fp16 on devices for which it refuses it."""

from collections.abc import Iterator

from tunec.compiler.lints.hardware.capability import below, with_capability
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    device = below(run, 7)
    enabled = run.effective("deepspeed", "fp16.enabled")
    if device is None or enabled.value is not True or enabled.place is None:
        return
    allowed = run.said("launch", "environment.DS_ALLOW_DEPRECATED_FP16")
    capability = device.compute_capability or (0, 0)
    if allowed is not None and str(allowed.value) == "1" and capability[0] == 6:
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


RULE = Rule(
    name="fp16-refused-by-deepspeed",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 accelerator/cuda_accelerator.py `is_fp16_supported`; "
            "runtime/engine.py `_do_sanity_check`"
        ),
    ),
    check=_check,
)
