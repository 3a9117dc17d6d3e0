"""Prompts may be as long as the whole sequence."""

from collections.abc import Iterator

from tunec.compiler.lints.preference.asked import preferences, whole
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document, name in preferences(run):
        prompt, total = document.get("max_prompt_length"), document.get("max_length")
        if name != "dpo" or document.kind != "dpo" or prompt is None:
            continue
        most = total.value if total is not None else 1024
        if whole(prompt.value) is None or whole(most) is None or prompt.value < most:
            continue
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
            "trl 0.8.6 to 0.28.0 trainer/dpo_trainer.py `tokenize_row`, `concatenated_inputs`: "
            "prompts are cut to max_prompt_length, the sequence to max_length; the field is gone "
            "in 1.3.0"
        ),
    ),
    check=_check,
)
