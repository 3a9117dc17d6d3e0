"""Settings that the fine-tuning script of a vision-language model refuses, or drops in silence."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.adapter.lora import is_true
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import stage_of

_LLAVA: Final = ("mm_projector_type", "tune_mm_mlp_adapter", "pretrain_mm_mlp_adapter")
_SERIES: Final = ("freeze_merger", "vision_lora", "freeze_vision_tower")
"""2U1/Qwen-VL-Series-Finetune has `lora_enable` as LLaVA does, and these."""
_OPENS: Final = ("use_llm_lora", "use_backbone_lora", "unfreeze_vit_layers", "unfreeze_lm_head")
"""OpenGVLab/InternVL 2410d1d internvl_chat_finetune.py: what is open beside the three freezes."""
_HUB: Final = re.compile(r"[\w-]+/[\w.-]+")
_NEW_LLAVA: Final = re.compile(r"llava-v1[._][56]")
_QWEN: Final = ("fix_vit", "q_lora", "use_lora")


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("hf", "sft"):
        if document.is_view or document.format != "shell":
            continue
        if any(document.get(key) for key in _SERIES):
            yield from _of_series(document)
        elif any(document.get(key) for key in _LLAVA):
            yield from _of_llava(document)
            yield from _tower(document)
        elif document.get("conv_style") and document.get("force_image_size"):
            yield from _of_internvl(document)
        elif any(document.get(key) for key in _QWEN):
            yield from _of_qwen(run, document)


def _of_series(document: Document) -> Iterator[Finding]:
    lora, llm = document.get("lora_enable"), document.get("freeze_llm")
    if _is_on(lora) and not _is_open(document, "freeze_llm") and not _is_on(llm):
        yield _finding((llm, lora), "lora_enable needs freeze_llm true", "raises ValueError")
    vision, tower = document.get("vision_lora"), document.get("freeze_vision_tower")
    if not _is_on(vision):
        return
    if not _is_on(tower) and not _is_open(document, "freeze_vision_tower"):
        told = "vision_lora needs freeze_vision_tower true"
        yield _finding((tower, vision), told, "raises ValueError")
    if not _is_on(lora) and not _is_open(document, "lora_enable"):
        yield _finding((vision, lora), "vision_lora needs lora_enable true", "AssertionError")


def _of_llava(document: Document) -> Iterator[Finding]:
    lora, tuned = document.get("lora_enable"), document.get("tune_mm_mlp_adapter")
    projector = document.get("pretrain_mm_mlp_adapter")
    if _is_on(lora) and _is_on(tuned):
        yield _finding(
            (tuned, lora),
            "tune_mm_mlp_adapter freezes LoRA's weights",
            "it is read after LoRA is put in, and leaves the gradients of the projector alone",
            "silent",
        )
    form = document.get("version")
    is_named = document.get("mm_tunable_parts") is not None  # LLaVA-NeXT's name for what is tuned
    if form is not None and form.value == "plain" and not _is_on(tuned) and not is_named:
        yield _finding(
            (form, None),
            "version plain is the form of the projector's pretraining",
            "questions are dropped, and the model is trained to caption",
            "silent",
        )
    start = document.get("mm_use_im_start_end")
    if _is_on(start) and projector is not None and projector.value:
        yield _finding(
            (start, projector),
            "mm_use_im_start_end asks the projector's file for embeddings of tokens",
            "KeyError model.embed_tokens.weight where it was pretrained without the two tokens",
            "load",
        )
    kind, base = document.get("mm_projector_type"), document.get("model_name_or_path")
    names = f"{base.value if base else ''} {projector.value if projector else ''}".lower()
    is_left_out = kind is None and not _is_open(document, "mm_projector_type")
    if is_left_out and projector is not None and ("v1.5" in names or "mlp2x" in names):
        yield _finding(
            (projector, base),
            "the projector is built as `linear` where mm_projector_type is left out",
            "LLaVA 1.5 has mlp2x_gelu: Error(s) in loading state_dict",
            "load",
        )


def _tower(document: Document) -> Iterator[Finding]:
    """LLaVA's builder takes a folder, or CLIP by the names of two makers."""
    tower, base = document.get("vision_tower"), document.get("model_name_or_path")
    is_named = document.get("mm_tunable_parts") is not None  # LLaVA-NeXT, which has SigLIP too
    if tower is not None and isinstance(tower.value, str) and not is_named:
        name = tower.value.lower()
        if _HUB.fullmatch(tower.value) and ("siglip" in name or "llava" in name):
            yield _finding(
                (tower, None),
                f"{tower.value} is no vision tower of LLaVA",
                "it takes the CLIP of openai or laion, or a folder: Unknown vision tower",
                "load",
            )
    kind = document.get("mm_projector_type")
    name = str(base.value).lower() if base is not None else ""
    if kind is not None and kind.value == "linear" and _NEW_LLAVA.search(name):
        yield _finding(
            (kind, base),
            "mm_projector_type linear for a checkpoint whose projector is mlp2x_gelu",
            "its weights do not fit, and a new projector is made without them",
            "load",
        )


def _of_internvl(document: Document) -> Iterator[Finding]:
    frozen = [document.get(key) for key in ("freeze_llm", "freeze_mlp", "freeze_backbone")]
    if not all(_is_on(each) for each in frozen) or document.unknown & set(_OPENS):
        return
    if any(str(document.value(key, 0)).lower() not in ("0", "false") for key in _OPENS):
        return
    yield _finding(
        (frozen[0], frozen[2]),
        "freeze_llm, freeze_mlp and freeze_backbone leave nothing to train",
        "element 0 of tensors does not require grad: no LoRA is asked for, and no layer is open",
        "step",
    )


def _of_qwen(run: Run, document: Document) -> Iterator[Finding]:
    lora, base = document.get("use_lora"), document.get("model_name_or_path")
    q_lora, stage = document.get("q_lora"), stage_of(run)
    name = str(base.value).lower() if base is not None else ""
    if base is None or not _is_on(lora) or "qwen" not in name or "qwen2" in name:
        return
    if stage.value == 3 and "chat" not in name and not _is_on(q_lora) and stage.place is not None:
        yield _finding(
            (lora, stage.place),
            "LoRA of a base model is refused under ZeRO stage 3",
            "wte and lm_head would be trained too: ZeRO3 is incompatible with LoRA when finetuning",
            "init",
        )
    bf16 = document.get("bf16")
    if _is_on(q_lora) and _is_on(bf16):
        yield _finding(
            (bf16, q_lora),
            "q_lora cannot be computed in bf16",
            "kernels of GPTQ are for fp16 alone",
            "step",
        )


def _is_on(place: Place | None) -> bool:
    return place is not None and is_true(place.value)


def _is_open(document: Document, key: str) -> bool:
    return key in document.unknown


def _finding(
    places: tuple[Place | None, Place | None],
    what: str,
    why: str,
    consequence: Consequence = "init",
) -> Finding:
    first, *rest = [each for each in places if each is not None]
    return Finding(
        what,
        (first.label("here"), *(each.label("", primary=False) for each in rest)),
        (why,),
        "change one of the two" if rest else "use the form of the language model",
        consequence=consequence,
    )


RULE = Rule(
    name="script-settings-clash",
    severity="error",
    consequence="init",
    consumers=("transformers",),
    sources=(
        "2U1/Qwen-VL-Series-Finetune 93fef86 src/train/train_sft.py `train`: ValueError",
        (
            "haotian-liu/LLaVA c121f04 llava/train/train.py `train`, llava/model/llava_arch.py "
            "`initialize_vision_tokenizer`; haotian-liu/LLaVA#470, #1428"
        ),
        (
            "haotian-liu/LLaVA c121f04 llava/model/multimodal_encoder/builder.py: Unknown vision "
            "tower; LLaVA-VL/LLaVA-NeXT#216, haotian-liu/LLaVA#665"
        ),
        (
            "OpenGVLab/InternVL 2410d1d internvl_chat_finetune.py `main`: _freeze_params, "
            "wrap_llm_lora, wrap_backbone_lora"
        ),
        (
            "QwenLM/Qwen 2df8e8a finetune.py `train`: RuntimeError; README.md: only fp16 is "
            "supported for Q-LoRA"
        ),
    ),
    check=_check,
)
