"""The part of a vision-language model that is trained."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place
from tunec.compiler.lints.facts.lora import Lora, is_minicpm, is_patched, is_true, lora_keys, loras
from tunec.compiler.lints.facts.model import NoRegex, adapted
from tunec.compiler.lints.rule import Finding, keys, rule


@rule(
    "language-model-tuned-beside-lora",
    "error",
    "load",
    consumers=("minicpm-v",),
    reads=keys("trainer|model|minicpm-v", "use_lora"),
)
def language_model_tuned_beside_lora(run: LintContext) -> Iterator[Finding]:
    """MiniCPM-V's script is set to train both the language model and LoRA in it."""
    for document in run.documents:
        if document.is_view or not is_minicpm(document):
            continue
        lora, llm = document.get("use_lora"), document.get("tune_llm")
        if lora is None or not is_true(lora.value):
            continue
        if llm is not None and not is_true(llm.value):
            continue
        yield Finding(
            "use_lora cannot stand beside tune_llm, which is true"
            f"{'' if llm is not None else ' by default'}",
            (
                lora.label("refused") if llm is None else llm.label("refused"),
                *([lora.label("", primary=False)] if llm is not None else []),
            ),
            ("The model cannot simultaneously adjust LLM parameters and apply LoRA",),
            "write tune_llm false",
        )


_LATE_TOWER: Final = re.compile(r"\bdelay_load\s*=\s*True")
"""The way in which haotian-liu/LLaVA llava/model/multimodal_encoder builds a tower without layers,
which are loaded after the adapters have been made."""


@rule(
    "lora-reaches-vision-tower",
    "warning",
    "silent",
    consumers=("peft",),
    reads=(*lora_keys("target_modules"), "axolotl:lora_target_linear"),
)
def lora_reaches_vision_tower(run: LintContext) -> Iterator[Finding]:
    """LoRA's targets also match layers of the vision tower."""
    if run.model is None or run.model.architecture.kind != "vision-language":
        return
    if run.own.shows(_LATE_TOWER):
        return
    tree = run.model.architecture
    for lora in loras(run):
        at, targets = _place(lora), lora.targets
        if at is None or targets is None or is_patched(run, lora):
            continue
        try:
            found = adapted(tree, targets, lora.excluded)
        except NoRegex:
            continue
        seen = sum(each.copies for each in found if each.part == "vision")
        every = sum(each.copies for each in found)
        if seen and seen < every:
            yield Finding(
                f"{seen} of the {every} layers that LoRA adapts are in the vision tower",
                (at.label("matches both"),),
                (
                    "activations of the tower are kept for the backward pass, image by image",
                    "names of projections are the same in both parts",
                ),
                "exclude the tower (exclude_modules), or write a regular expression",
            )


def _place(lora: Lora) -> Place | None:
    return lora.place("target_modules") or lora.document.get("lora_target_linear")


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


@rule(
    "chat-form-of-another-model",
    "error",
    "silent",
    consumers=("transformers",),
    reads=keys("trainer|minicpm-v", "model_name_or_path"),
)
def chat_form_of_another_model(run: LintContext) -> Iterator[Finding]:
    """A vision-language model's script uses the chat template of another language model."""
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
        if form is not None and sees and str(form.value) in _OTHERS and _VICUNA.search(model.value):
            yield _other(form, model, "v1")


def _other(at: Place, model: Place, right: str) -> Finding:
    return Finding(
        f"{at.path} {at.value} for {model.value}, whose form is {right}",
        (at.label("turns in another model's tokens"), model.label("", primary=False)),
        ("the samples are written in a form that the model was never trained with",),
        f"write --{at.path} {right}",
        Fix((at.replaced(right),), "unsafe"),
    )


def _of_minicpm(run: LintContext) -> Iterator[Finding]:
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
