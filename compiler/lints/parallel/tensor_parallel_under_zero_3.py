"""Tensor parallelism beside the sharding of stage 3."""

from collections.abc import Iterator

from tunec.compiler.lints.batch.counts import is_number
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, stage_of


def _check(run: Run) -> Iterator[Finding]:
    stage = stage_of(run)
    for place in run.each("deepspeed", "tensor_parallel.autotp_size"):
        if is_number(place.value) and place.value > 1 and stage.value == 3:
            yield Finding(
                f"autotp_size {place.value} is refused at ZeRO stage 3",
                (place.label("refused"), *also(stage.place)),
                ("both split the same weights",),
                "use stage 1 or 2 beside tensor parallelism",
            )


RULE = Rule(
    name="tensor-parallel-under-zero-3",
    severity="error",
    consequence="init",
    consumers=("deepspeed>=0.16.4,<0.19.4",),
    sources=(
        (
            "deepspeed 0.16.9, 0.17.6, 0.18.9, 0.19.3 runtime/engine.py "
            "`_configure_tensor_parallel`: the compatibility between 'autotp' and 'zero_stage = 3' "
            "has not been validated"
        ),
        (
            "deepspeed 0.19.4, 0.19.8 runtime/engine.py `_configure_tensor_parallel_states`: "
            "AutoTP + ZeRO stage 3 is supported"
        ),
    ),
    check=_check,
)
