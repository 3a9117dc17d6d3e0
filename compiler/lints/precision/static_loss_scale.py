"""fp16 with a loss scale that never moves."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_SMALLEST = 2.0**-24
"""The smallest number of fp16 above zero."""


def _check(run: Run) -> Iterator[Finding]:
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


RULE = Rule(
    name="static-loss-scale",
    severity="warning",
    consequence="silent",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/precision_config.py, before 0.17 "
            "runtime/config.py: "
            "loss_scale 0 is dynamic; runtime/fp16/loss_scaler.py `LossScaler`: never changes"
        ),
        "IEEE 754 binary16: smallest subnormal 2^-24, largest 65504",
    ),
    check=_check,
)
