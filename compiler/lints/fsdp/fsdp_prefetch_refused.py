"""A word for FSDP's prefetching that there is not."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.fsdp.asked import asked
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_WORDS: Final = ("BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH")
_NUMBERS: Final = ("1", "2")


def _check(run: Run) -> Iterator[Finding]:
    for each in asked(run):
        place = each.get("backward_prefetch")
        if each.who != "trainer" or each.version != 1 or place is None:
            continue  # of accelerate's own file and flags `word-of-none` speaks
        word = str(place.value).upper()
        if word in (*_WORDS, *_NUMBERS):
            continue
        yield Finding(
            f"backward_prefetch {place.value} is no way of prefetching",
            (place.label("refused"),),
            (f"the words are {', '.join(_WORDS)}",),
            "write backward_pre, or leave it out",
        )


RULE = Rule(
    name="fsdp-prefetch-refused",
    severity="error",
    consequence="init",
    consumers=("accelerate", "transformers"),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 utils/dataclasses.py "
            "`FullyShardedDataParallelPlugin.__post_init__`: BackwardPrefetch[word.upper()]"
        ),
        "transformers 4.40.2 to 4.57.6 training_args.py: FSDP_BACKWARD_PREFETCH is the word",
    ),
    check=_check,
)
