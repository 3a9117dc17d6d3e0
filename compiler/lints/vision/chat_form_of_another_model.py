"""A script of a vision-language model is told another language model's chat form."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_FORMS: Final = (
    (re.compile(r"(?i)minicpm-(v|o)-?2[_.]6"), "qwen"),
    (re.compile(r"(?i)minicpm-llama3-v"), "llama3"),
    (re.compile(r"(?i)minicpm-v-?2(\.0)?/?$"), "minicpm"),
)
"""finetune/readme.md and finetune/finetune_lora.sh of OpenBMB/MiniCPM-V."""
_KNOWN: Final = ("minicpm", "llama3", "qwen")
_STYLES: Final = (
    (re.compile(r"(?i)internvl(2[_.]5|3)-?\d+b"), "internvl2_5"),
    (re.compile(r"(?i)internvl2-(2|8|26)b"), "internlm2-chat"),
    (re.compile(r"(?i)internvl2-(1|40)b"), "Hermes-2"),
    (re.compile(r"(?i)internvl2-4b"), "phi3-chat"),
)
"""OpenGVLab/InternVL 2410d1d internvl_chat/shell: the conv_style of each model's own scripts."""
_VICUNA: Final = re.compile(r"(?i)llava-v1[._]5-|llava-v1[._]6-vicuna|(?:^|/)vicuna-")
_OTHERS: Final = frozenset({"llava_llama_2", "llama_2", "mpt", "mistral_instruct", "chatml_direct"})
"""haotian-liu/LLaVA c121f04 llava/conversation.py `conv_templates`: forms of other models."""


def _check(run: Run) -> Iterator[Finding]:
    yield from _of_minicpm(run)
    for document in run.of("hf", "sft"):
        model, style = document.get("model_name_or_path"), document.get("conv_style")
        if document.is_view or model is None or not isinstance(model.value, str):
            continue
        right = next((name for pattern, name in _STYLES if pattern.search(model.value)), None)
        if style is not None and right is not None and style.value != right:
            yield _other(style, model, right)
        form = document.get("version")
        sees = document.get("mm_projector_type") or document.get("vision_tower")
        if form is not None and sees and form.value in _OTHERS and _VICUNA.search(model.value):
            yield _other(form, model, "v1")


def _other(at: Place, model: Place, right: str) -> Finding:
    return Finding(
        f"{at.path} {at.value} for {model.value}, whose form is {right}",
        (at.label("turns in another model's tokens"), model.label("", primary=False)),
        ("the samples are written in a form that the model was never trained with",),
        f"write --{at.path} {right}",
        Fix((at.replaced(right),), "unsafe"),
    )


def _of_minicpm(run: Run) -> Iterator[Finding]:
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
        "OpenGVLab/InternVL 2410d1d internvl_chat/shell; bdytx5/finetune_LLaVA#1",
    ),
    check=_check,
)
