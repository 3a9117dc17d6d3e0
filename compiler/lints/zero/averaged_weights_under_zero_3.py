"""Averaged weights (EMA) of SimpleTuner under ZeRO-3."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.diffusion.asked import configs, is_on, said
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, stage_of

_WHY: Final = (
    "the shards are to be gathered for it by a context that is called like a function: "
    "`'GatheredParameters' object is not callable`"
)


def _check(run: Run) -> Iterator[Finding]:
    stage = stage_of(run)
    if stage.value != 3:
        return
    for document in configs(run):
        average = said(document, "use_ema")
        if average is not None and is_on(average):
            yield Finding(
                "averaged weights under ZeRO stage 3",
                (average.label("stops at the first update"), *also(stage.place)),
                (_WHY,),
                "use stage 2 with ema_validation: none, or remove use_ema",
            )


RULE = Rule(
    name="averaged-weights-under-zero-3",
    severity="error",
    consequence="step",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/training/ema.py `EMAModel.step`: `with "
            "context_manager()`, where the context is an instance of GatheredParameters"
        ),
        "deepspeed 0.14.5 to 0.19.8 runtime/zero/partition_parameters.py `GatheredParameters`",
    ),
    check=_check,
)
