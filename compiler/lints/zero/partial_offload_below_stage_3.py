"""A share of the optimizer is to be offloaded at a ZeRO stage that offloads all or nothing."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, stage_of

_RATIO: Final = "zero_optimization.offload_optimizer.ratio"


def _check(run: Run) -> Iterator[Finding]:
    ratio, stage = run.effective("deepspeed", _RATIO), stage_of(run)
    if ratio.place is None or not isinstance(ratio.value, int | float) or ratio.value >= 1:
        return
    if stage.value in (0, 1, 2):
        yield Finding(
            f"offload_optimizer.ratio {ratio.value} needs stage 3, and the stage is {stage.value}",
            (ratio.place.label("refused"), *also(stage.place)),
            (),
            "use stage 3, or remove ratio",
            # 0.14 looks for the block among the names of a dict's own attributes
            consequence="silent" if run.runs("deepspeed<0.15") else None,
        )


RULE = Rule(
    name="partial-offload-below-stage-3",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/zero/config.py `offload_ratio_check`: Partial "
            "offloading only supported for ZeRO Stage 3"
        ),
    ),
    check=_check,
)
