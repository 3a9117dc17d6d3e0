"""A width for tensor parallelism where DeepSpeed looks for none."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.batch.counts import is_number
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_BLOCK: Final = "tensor_parallel"
_NESTED: Final = ("tp", "tensor_parallel")
"""`TPTrainingConfig.tensor_parallel` and its alias."""

_WHY: Final = (
    "autotp_size is 0, which is off, unless it is written; only a script that calls tp_model_init "
    "splits the model otherwise"
)


def _check(run: Run) -> Iterator[Finding]:
    asked = run.said("deepspeed", f"{_BLOCK}.autotp_size")
    if asked is not None and asked.value not in (0, 1):
        return
    for name in _NESTED:
        for width in run.each("deepspeed", f"{_BLOCK}.{name}.tp_size"):
            if is_number(width.value) and width.value > 1:
                yield Finding(
                    f"tp_size {width.value} without autotp_size: the model is not split",
                    (width.label("no width by itself"),),
                    (_WHY,),
                    f"write {_BLOCK}: {{autotp_size: {width.value}}}",
                )


RULE = Rule(
    name="tensor-width-unread",
    severity="warning",
    consequence="silent",
    consumers=("deepspeed>=0.16.4",),
    sources=(
        (
            "deepspeed 0.16.9 to 0.19.8 runtime/tensor_parallel/config.py `TPTrainingConfig`: "
            "autotp_size, 0: disabled; runtime/engine.py: AutoTP where autotp_size is above it"
        ),
        "deepspeedai/DeepSpeed#7389",
    ),
    check=_check,
)
