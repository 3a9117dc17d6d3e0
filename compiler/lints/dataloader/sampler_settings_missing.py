"""DeepSpeed's sampler of data is turned on without what it goes by."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_SAMPLING: Final = "data_efficiency.data_sampling."
_NEEDS: Final = (
    ("curriculum_learning", "curriculum_metrics", ""),
    ("dynamic_batching", "max_tokens", "deepspeed>=0.16"),
)
"""A block, the key that it needs once it is enabled, and since when that is checked."""


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("deepspeed"):
        for block, needed, since in _NEEDS:
            at = document.get(f"{_SAMPLING}{block}.enabled")
            if at is None or at.value is not True or (since and run.runs(since) is False):
                continue
            if document.get(f"{_SAMPLING}{block}.{needed}") is None:
                yield Finding(
                    f"{block} is enabled without {needed}",
                    (at.label("refused"),),
                    (f"DeepSpeed asserts that {needed} is there, whatever else is turned off",),
                    f"write {needed}, or enabled: false",
                )


RULE = Rule(
    name="sampler-settings-missing",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/data_pipeline/config.py `get_curriculum_learning`: "
            "curriculum_metrics must be specified; 0.16.9 to 0.19.8 `get_dynamic_batching`: "
            "max_tokens must be specified"
        ),
    ),
    check=_check,
)
