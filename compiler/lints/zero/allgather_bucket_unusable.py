"""A bucket for gathering that stages 1 and 2 cannot work with."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.batch.counts import is_number
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, said_in, stage_of


def _check(run: Run) -> Iterator[Finding]:
    stage = stage_of(run)
    if stage.value not in (1, 2):
        return
    for place in said_in(run, ("allgather_bucket_size",)):
        if not is_number(place.value) or place.value <= 0 or place.value % 2 == 0:
            continue
        yield Finding(
            f"allgather_bucket_size {place.value} is odd, and stage {stage.value} refuses it",
            (place.label("refused"), *also(stage.place)),
            ("the size of the bucket is aligned to 2 elements",),
            f"write {int(place.value) + 1}",
            Fix((place.replaced(int(place.value) + 1),), "safe"),
        )


RULE = Rule(
    name="allgather-bucket-unusable",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/zero/stage_1_and_2.py `__init__`: "
            "allgather_bucket_size must be a multiple of nccl_start_alignment_factor"
        ),
    ),
    check=_check,
)
