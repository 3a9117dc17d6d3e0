"""DeepSpeed's fp16 on devices for which it refuses it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tunec.compiler.lints.hardware.capability import below, with_capability
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

if TYPE_CHECKING:
    from tunec.schemas.hardware.profile import Device


def _check(run: Run) -> Iterator[Finding]:
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


def _is_let_pass(run: Run, device: "Device") -> bool:
    """Whether the variable is set that counts compute capability 6.x in: read from 0.13.2 on."""
    allowed = run.said("launch", "environment.DS_ALLOW_DEPRECATED_FP16")
    if allowed is None or str(allowed.value) != "1" or run.runs("deepspeed<0.13.2"):
        return False
    return (device.compute_capability or (0, 0))[0] == 6


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
        "deepspeedai/DeepSpeed 3e94f8c (0.13.0, the check) and 6857061 (0.13.2, the variable)",
    ),
    check=_check,
)
