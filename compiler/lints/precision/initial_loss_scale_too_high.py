"""Dynamic loss scaling that starts where everything overflows."""

from collections.abc import Iterator

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_HIGHEST = 24
"""fp16 ends below 2^16, and gradients of a mean loss are well below 1: some steps more are "
"usual."""


def _check(run: Run) -> Iterator[Finding]:
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


RULE = Rule(
    name="initial-loss-scale-too-high",
    severity="warning",
    consequence="silent",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/fp16/loss_scaler.py "
            "`DynamicLossScaler.update_scale`: "
            "an overflow halves, `hysteresis` overflows later at first"
        ),
    ),
    check=_check,
)
