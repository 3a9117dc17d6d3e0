"""A limit of zero checkpoints, which is none."""

from collections.abc import Iterator

from tunec.compiler.lints.batch.counts import is_number
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for place in run.each("trainer", "save_total_limit"):
        if is_number(place.value) and place.value <= 0:
            yield Finding(
                f"save_total_limit {place.value} keeps every checkpoint",
                (place.label("no limit"),),
                ("a checkpoint with its states is 6 to 8 times as large as the 16-bit model",),
                'write 1, or save_strategy: "no" for no checkpoint at all',
            )


RULE = Rule(
    name="limit-of-zero-checkpoints",
    severity="warning",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 4.57.6 trainer.py `_rotate_checkpoints`, 5.23.0 "
            "trainer_utils.py `rotate_checkpoints`: returns where save_total_limit is None or <= 0"
        ),
        "arXiv 1910.02054 section 3.1: 2 bytes of weights and 12 of states in mixed precision",
    ),
    check=_check,
)
