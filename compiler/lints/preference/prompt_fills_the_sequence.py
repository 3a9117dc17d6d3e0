"""Prompts may be as long as the whole sequence."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.preference.asked import preferences, whole
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_CUT_AT_THE_END: Final = "trl<0.14"


def _check(run: Run) -> Iterator[Finding]:
    for document, name in preferences(run):
        prompt, total = document.get("max_prompt_length"), document.get("max_length")
        if name != "dpo" or document.kind != "dpo" or prompt is None:
            continue
        most = total.value if total is not None else 1024
        if whole(prompt.value) is None or whole(most) is None or prompt.value < most:
            continue
        if run.runs(_CUT_AT_THE_END) is False and document.value("truncation_mode") != "keep_start":
            continue  # the end is kept, with the answers, and the prompt is cut
        yield Finding(
            f"max_prompt_length {prompt.value} leaves nothing of max_length {most} to completions",
            (
                prompt.label("as long as the whole"),
                *([total.label("the whole", primary=False)] if total is not None else []),
            ),
            ("completions are cut to nothing, and chosen and rejected become equal",),
            f"write {most // 2}",
        )


RULE = Rule(
    name="prompt-fills-the-sequence",
    severity="error",
    consequence="silent",
    consumers=("trl<0.29",),
    sources=(
        (
            "trl 0.8.6 to 0.13.0 trainer/dpo_trainer.py `tokenize_row`, `concatenated_forward`: "
            "prompts are cut to max_prompt_length, the sequence at its end to max_length; 0.14.0 "
            "to 0.28.0: so with truncation_mode keep_start alone; the field is gone in 1.3.0"
        ),
    ),
    check=_check,
)
