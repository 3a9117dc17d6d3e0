"""A batch, or an accumulation, of nothing."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.batch.counts import is_number
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_KEYS: Final = {
    "per_device_train_batch_size": "batch_size should be a positive integer value",
    "per_device_eval_batch_size": "batch_size should be a positive integer value",
    "gradient_accumulation_steps": "integer division or modulo by zero",
}
"""What each ends in: torch's DataLoader, and the count of the steps of an epoch."""


def _check(run: Run) -> Iterator[Finding]:
    for key, why in _KEYS.items():
        for place in run.each("trainer", key):
            if is_number(place.value) and place.value < 1:
                yield Finding(
                    f"`{place.path}` is {place.value}",
                    (place.label("at least 1"),),
                    (why,),
                    "write 1 or more",
                    Fix((place.replaced(1),), "unsafe"),
                )


RULE = Rule(
    name="batch-of-nothing",
    severity="error",
    consequence="init",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 trainer.py `_get_dataloader` and "
            "`get_train_dataloader`, "
            "`_inner_training_loop`: len_dataloader // args.gradient_accumulation_steps"
        ),
        "torch 2.13.0 utils/data/sampler.py `BatchSampler`: ValueError",
    ),
    check=_check,
)
