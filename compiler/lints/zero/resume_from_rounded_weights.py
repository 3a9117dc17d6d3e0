"""Master weights are rebuilt from 16-bit copies on resume."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, said_in, stage_of


def _check(run: Run) -> Iterator[Finding]:
    stage = stage_of(run)
    for place in said_in(run, ("load_from_fp32_weights",)):
        if place.value is False and stage.value in (1, 2, 3):
            yield Finding(
                "load_from_fp32_weights false: a resumed run starts from rounded weights",
                (place.label("16-bit copies are taken"), *also(stage.place)),
                ("the fp32 copies in the checkpoint are passed over",),
                "remove it, unless the checkpoint has no optimizer states",
                Fix((place.removed(),), "unsafe"),
            )


RULE = Rule(
    name="resume-from-rounded-weights",
    severity="warning",
    consequence="resume",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/zero/config.py `load_from_fp32_weights`: from the "
            "fp16 copies of the model (with precision loss); stage_1_and_2.py "
            "`_restore_from_bit16_weights`"
        ),
    ),
    check=_check,
)
