"""The least pixels of an image are more than the most."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_PAIRS: Final = (
    ("image_min_pixels", "image_max_pixels"),
    ("video_min_pixels", "video_max_pixels"),
    ("min_pixels", "max_pixels"),
)


def _check(run: Run) -> Iterator[Finding]:
    for document in run.documents:
        if document.is_view:
            continue
        for low_key, high_key in _PAIRS:
            low, high = document.get(low_key), document.get(high_key)
            if low is None or high is None:
                continue
            if (
                isinstance(low.value, int)
                and isinstance(high.value, int)
                and low.value > high.value
            ):
                yield Finding(
                    f"{low_key} {low.value} is more than {high_key} {high.value}",
                    (low.label("more than the most"), high.label("", primary=False)),
                    ("LLaMA-Factory refuses the pair; others scale up and down in turn",),
                    "exchange them",
                )


RULE = Rule(
    name="pixel-bounds-crossed",
    severity="error",
    consequence="parse",
    consumers=("llamafactory", "transformers"),
    sources=(
        (
            "llamafactory 0.9.3 to 0.9.5 hparams/model_args.py `ProcessorArguments.__post_init__`: "
            "`image_max_pixels` cannot be smaller than `image_min_pixels`"
        ),
    ),
    check=_check,
)
