"""An option of TRL that its trainers do not take for samples with images."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.vision.images_packed import BY_MODEL
from tunec.compiler.lints.vision.seeing import sees

_ON_THE_FLY: Final = "samples with images are prepared when they are used, not before"
_ROWS: Final = (
    (("sft",), "assistant_only_loss", _ON_THE_FLY, "trl>=0.22"),
    (("sft", "dpo"), "truncation_mode=keep_end", "the images lie in what is cut off", "trl>=1.0"),
    (("dpo",), "precompute_ref_log_probs", _ON_THE_FLY, "trl>=1.0"),
)
"""Kinds, condition, why, and the releases that refuse it."""


def _check(run: Run) -> Iterator[Finding]:
    if not sees(run):
        return
    for kinds, condition, why, since in _ROWS:
        for document in run.of(*kinds):
            at = where(document, condition)
            if at is None or document.is_view or run.runs(since) is False:
                continue
            if condition.startswith("truncation") and _is_whole(document):
                continue
            by_model = document.kind == "sft" and run.runs(BY_MODEL)
            yield Finding(
                f"{condition.replace('=', ': ')} over samples with images",
                (at.label("not for images"),),
                (why,),
                "remove it",
                severity=None if by_model else "warning",
            )


def _is_whole(document: Document) -> bool:
    """Whether nothing is cut: `max_length` is null."""
    length = document.get("max_length")
    return length is not None and length.value is None


RULE = Rule(
    name="option-not-for-images",
    severity="error",
    consequence="init",
    consumers=("trl",),
    sources=(
        (
            "trl 0.22.2 to 1.9.2 trainer/sft_trainer.py `__init__` (by the model), 1.11.0 to "
            "1.16.0 (by the data set): Assistant-only loss is not yet supported for vision; from "
            "1.16 with transformers before 5.18 only"
        ),
        (
            "trl 1.0.0 to 1.16.0 trainer/sft_trainer.py, dpo_trainer.py: truncation_mode='keep_end'"
            " is not supported for vision-language models; precompute_ref_log_probs=True is not "
            "supported for vision datasets"
        ),
        "huggingface/trl#6545",
    ),
    check=_check,
)
