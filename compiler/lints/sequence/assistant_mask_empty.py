"""The assistant's words alone are to be learnt, and the template does not mark them."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_UNMARKED: Final = re.compile(
    r"/(meta-)?llama-[23]|/qwen[23]|/mistral-|/mixtral-|/gemma-|/phi-[34]|/deepseek-|/zephyr-"
)
"""Chat models whose own templates have no `{% generation %}` (huggingface/trl#4879)."""
_SINCE: Final = "trl>=0.19,<1.1"
"""1.1 and later put the marks into the templates that they know."""


def _check(run: Run) -> Iterator[Finding]:
    if not run.runs(_SINCE):
        return
    for document in run.of("sft"):
        at, model = where(document, "assistant_only_loss"), document.get("model_name_or_path")
        is_own = any(document.get(key) for key in ("chat_template_path", "chat_template"))
        if at is None or model is None or is_own or document.is_view:
            continue
        name = f"/{str(model.value).lower().rpartition('/')[2]}"
        if _UNMARKED.search(name):
            yield Finding(
                f"the chat template of {model.value} does not mark the assistant's words",
                (at.label("finds none"), model.label("", primary=False)),
                ("a mask is made of what stands between generation and endgeneration",),
                "give a template with the marks as chat_template_path, or use TRL 1.1 and later",
            )


RULE = Rule(
    name="assistant-mask-empty",
    severity="warning",
    consequence="init",
    consumers=("trl",),
    sources=(
        (
            "trl 0.19.1 to 1.0.0 trainer/sft_trainer.py `tokenize`: RuntimeError where 1 is not in "
            "assistant_masks; 1.1.0 `get_training_chat_template`"
        ),
        "huggingface/trl#4879, #4147, #3784",
    ),
    check=_check,
)
