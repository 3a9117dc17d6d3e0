"""A number outside the range in which the trainer does something with it."""

from collections.abc import Callable, Iterator
from typing import Final

from tunec.compiler.lints.batch.counts import is_number
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run

Told = tuple[str, Callable[[float], bool], str, str, Consequence]
_KEYS: Final[tuple[Told, ...]] = (
    (
        "label_smoothing_factor",
        lambda value: value < 0 or value >= 1,
        "it is the share of the target that all words get: the right word is left with the rest",
        "write 0.1, or 0",
        "silent",
    ),
    (
        "max_grad_norm",
        lambda value: value < 0,
        "gradients are clipped only where it is above 0",
        "write 1.0, or 0 for no clipping",
        "silent",
    ),
    (
        "neftune_noise_alpha",
        lambda value: value < 0,
        "the noise is drawn from -alpha to alpha, over a root",
        "write 5",
        "silent",
    ),
    (
        "dataloader_num_workers",
        lambda value: value < 0,
        "a loader has 0 or more processes",
        "write 0",
        "init",
    ),
    (
        "dataloader_prefetch_factor",
        lambda value: value <= 0,
        "each process of the loader prepares 1 or more batches ahead",
        "write 2",
        "init",
    ),
    ("weight_decay", lambda value: value < 0, "no optimizer takes it", "write 0", "init"),
    (
        "ddp_timeout",
        lambda value: value <= 0,
        "it is in seconds: the processes give up before they have met",
        "write 1800",
        "init",
    ),
    (
        "ddp_bucket_cap_mb",
        lambda value: value <= 0,
        "0 reduces each gradient alone, and below 0 all of them at once after the backward pass",
        "write 25, or leave it out",
        "slow",
    ),
)
_RUNS: Final = ("silent", "slow")


def _check(run: Run) -> Iterator[Finding]:
    for key, is_odd, why, mend, consequence in _KEYS:
        for place in run.each("trainer", key):
            if is_number(place.value) and is_odd(place.value):
                refused = consequence not in _RUNS
                yield Finding(
                    f"`{place.path}` cannot be {place.value}"
                    if refused
                    else f"`{place.path}` {place.value} means nothing",
                    (place.label("refused" if refused else "taken, and not what it says"),),
                    (why,),
                    mend,
                    severity=None if refused or key.startswith("label") else "warning",
                    consequence=consequence,
                )


RULE = Rule(
    name="number-without-meaning",
    severity="error",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 trainer_pt_utils.py `LabelSmoother`: (1 - epsilon) * "
            "nll_loss + epsilon * smoothed_loss; trainer.py: if self.args.max_grad_norm > 0"
        ),
        (
            "torch 2.13.0 utils/data/dataloader.py `DataLoader.__init__`: num_workers option "
            "should be non-negative, prefetch_factor option should be non-negative; optim/adam.py: "
            "Invalid weight_decay value; nn/parallel/distributed.py: bucket_cap_mb, asked on gloo "
            "with 0 and -5; distributed/rendezvous.py: TCPStore(timeout=...)"
        ),
    ),
    check=_check,
)
