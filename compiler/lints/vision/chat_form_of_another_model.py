"""MiniCPM-V's script is told another language model's chat form."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_FORMS: Final = (
    (re.compile(r"(?i)minicpm-(v|o)-?2[_.]6"), "qwen"),
    (re.compile(r"(?i)minicpm-llama3-v"), "llama3"),
    (re.compile(r"(?i)minicpm-v-?2(\.0)?/?$"), "minicpm"),
)
"""finetune/readme.md and finetune/finetune_lora.sh of OpenBMB/MiniCPM-V."""
_KNOWN: Final = ("minicpm", "llama3", "qwen")


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("trainer", "minicpm-v"):
        form, model = document.get("llm_type"), document.get("model_name_or_path")
        if document.is_view or model is None or not isinstance(model.value, str):
            continue
        right = next((name for pattern, name in _FORMS if pattern.search(model.value)), None)
        if form is None and (document.target is None or document.target.name != "minicpm-v"):
            continue
        said = form.value if form is not None else "minicpm"
        if right is None or said == right or said not in _KNOWN:
            continue
        at = form if form is not None else model
        yield Finding(
            f"llm_type {said} for {model.value}, whose language model is {right}'s",
            (at.label("turns in another model's tokens"), model.label("", primary=False))
            if form is not None
            else (model.label("llm_type is left out, and is minicpm"),),
            (
                (
                    "the samples are written in that model's chat form, and the labels begin and "
                    "end at its tokens: they are wrong, or no label is left"
                ),
            ),
            f"write --llm_type {right}",
            Fix((form.replaced(right),), "unsafe") if form is not None else None,
        )


RULE = Rule(
    name="chat-form-of-another-model",
    severity="error",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "OpenBMB/MiniCPM-V finetune/dataset.py `conversation_to_ids`: by llm_type; "
            "finetune/readme.md: if use openbmb/MiniCPM-V-2_6, LLM_TYPE=qwen"
        ),
        "OpenBMB/MiniCPM-V#1033",
    ),
    check=_check,
)
