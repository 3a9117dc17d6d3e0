"""GaLore or APOLLO over weights that ZeRO has laid out flat."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_NAMES: Final = ("galore_", "apollo_")


def _check(run: Run) -> Iterator[Finding]:
    optimizer = run.said("trainer", "optim")
    stage = run.effective("deepspeed", "zero_optimization.stage")
    if optimizer is None or not isinstance(optimizer.value, str):
        return
    if not optimizer.value.startswith(_NAMES) or stage.value not in (1, 2, 3):
        return
    yield Finding(
        f"{optimizer.value} at ZeRO stage {stage.value} sees no matrices",
        (
            optimizer.label("projects matrices"),
            *(
                [stage.place.label("hands it one flat vector", primary=False)]
                if stage.place
                else []
            ),
        ),
        (
            (
                "ZeRO puts the weights of a group one behind the other and gives the optimizer "
                "its share of them, without their shapes"
            ),
        ),
        "use AdamW with ZeRO, or GaLore and APOLLO without DeepSpeed",
    )


RULE = Rule(
    name="projection-under-zero",
    severity="error",
    consequence="step",
    consumers=("deepspeed", "transformers"),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/zero/stage_1_and_2.py `DeepSpeedZeroOptimizer`: "
            "single_partition_of_fp32_groups replaces param_group['params']; stage3.py "
            "`_create_fp32_partitions`"
        ),
        "llamafactory 0.9.4 hparams/parser.py: GaLore and APOLLO are incompatible with DeepSpeed",
    ),
    check=_check,
)
