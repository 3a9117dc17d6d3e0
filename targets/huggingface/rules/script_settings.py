"""Rules about settings of fine-tuning scripts that exclude each other."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.launch import is_unknown, packages
from tunec.compiler.lints.facts.lora import MINICPM_FLAGS, is_minicpm, is_true
from tunec.compiler.lints.facts.sharding import stage_of
from tunec.compiler.lints.facts.training_loop import number_of
from tunec.compiler.lints.rule import Consequence, Finding, keys, rule
from tunec.schemas.frozen import replace
from tunec.targets.huggingface.rules.scripts import is_of_a_fork

_LLAVA: Final = ("mm_projector_type", "tune_mm_mlp_adapter", "pretrain_mm_mlp_adapter")
_SERIES: Final = ("freeze_merger", "vision_lora", "freeze_vision_tower")
"""Flags of 2U1/Qwen-VL-Series-Finetune; LLaVA, which also has `lora_enable`, does not have them."""
_OPENS: Final = ("use_llm_lora", "use_backbone_lora", "unfreeze_vit_layers", "unfreeze_lm_head")
"""Flags that train parts beside the three freezes: OpenGVLab/InternVL 2410d1d
internvl_chat_finetune.py."""
_HUB: Final = re.compile(r"[\w-]+/[\w.-]+")
_NEW_LLAVA: Final = re.compile(r"llava-v1[._][56]")
_QWEN: Final = ("fix_vit", "q_lora", "use_lora")
_PARTS: Final = ("tune_mm_vision", "tune_mm_mlp", "tune_mm_llm")
"""QwenLM/Qwen3-VL 9658872 qwen-vl-finetune/qwenvl/train/argument.py `ModelArguments`."""
_OPENED: Final = (
    *("mm_mlp_adapter", "mm_vision_resampler", "mm_vision_tower", "mm_language_model"),
)
"""The names that LLaVA-VL/LLaVA-NeXT llava/train/train.py `train` looks for in mm_tunable_parts."""
_INT4: Final = re.compile(r"(?i)int4|gptq")
_TELLING: Final = (*_SERIES, *_LLAVA, "conv_style", _PARTS[0], *_QWEN, *MINICPM_FLAGS)
"""Flags that identify a script."""


@rule("error", "init", consumers=("transformers",), reads=keys("hf|sft", *_TELLING))
def script_settings_clash(run: LintContext) -> Iterator[Finding]:
    """Settings that a vision-language model's script refuses or silently ignores."""
    for document in run.of("hf", "sft"):
        if not document.is_view and document.format == "shell":
            yield from _of_script(run, document)


def _of_script(run: LintContext, document: Document) -> Iterator[Finding]:
    """The findings of the script, which is identified by flags that it alone has."""
    if any(document.get(key) for key in _SERIES):
        yield from _of_series(document)
    elif any(document.get(key) for key in _LLAVA):
        is_fork = bool(packages(run, document) - {"llava"})
        yield from _of_llava(document, is_fork=is_fork)
        yield from _tower(document, is_fork=is_fork or is_of_a_fork(document))
        yield from _sharded(run, document)
        yield from _tuned(document)
    elif document.get("conv_style") and document.get("force_image_size"):
        yield from _of_internvl(document)
    elif all(document.get(key) for key in _PARTS):
        yield from _of_parts(document)
    elif is_minicpm(document):
        yield from _of_minicpm(run, document)
    elif any(document.get(key) for key in _QWEN):
        yield from _of_qwen(run, document)


def _of_series(document: Document) -> Iterator[Finding]:
    lora, llm = document.get("lora_enable"), document.get("freeze_llm")
    if _is_on(lora) and not is_unknown(document, "freeze_llm") and not _is_on(llm):
        yield _clash(
            (llm, lora),
            "lora_enable needs freeze_llm true",
            "LoRA is for a language model that is frozen: ValueError",
            "write --freeze_llm True",
        )
    vision, tower = document.get("vision_lora"), document.get("freeze_vision_tower")
    if not _is_on(vision):
        return
    if not _is_on(tower) and not is_unknown(document, "freeze_vision_tower"):
        yield _clash(
            (tower, vision),
            "vision_lora needs freeze_vision_tower true",
            "the tower is trained itself or by LoRA, not both: ValueError",
            "write --freeze_vision_tower True",
        )
    if not _is_on(lora) and not is_unknown(document, "lora_enable"):
        yield _clash(
            (vision, lora),
            "vision_lora needs lora_enable true",
            "it adds the tower's layers to those of LoRA: AssertionError",
            "write --lora_enable True",
        )


def _of_llava(document: Document, *, is_fork: bool) -> Iterator[Finding]:
    lora, tuned = document.get("lora_enable"), document.get("tune_mm_mlp_adapter")
    projector = document.get("pretrain_mm_mlp_adapter")
    if _is_on(lora) and _is_on(tuned):
        yield _clash(
            (tuned, lora),
            "tune_mm_mlp_adapter freezes LoRA's weights, which then learn nothing",
            "LLaVA reads it after LoRA is added, and freezes all but the projector",
            "remove --tune_mm_mlp_adapter, or --lora_enable",
            "silent",
        )
    frozen = document.get("freeze_mm_mlp_adapter")
    if _is_on(frozen) and _is_on(tuned):
        yield _clash(
            (frozen, tuned),
            "freeze_mm_mlp_adapter freezes all that tune_mm_mlp_adapter leaves open",
            "it is read last: element 0 of tensors does not require grad",
            "remove --freeze_mm_mlp_adapter",
            "step",
        )
    form = document.get("version")
    # LLaVA-NeXT has a name for what is tuned; a fork trains on captions as it likes
    is_named = document.get("mm_tunable_parts") is not None or is_fork
    if form is not None and form.value == "plain" and not _is_on(tuned) and not is_named:
        yield _clash(
            (form, None),
            "version plain is the form of the projector's pretraining",
            "questions are dropped, and the model is trained to caption",
            "write the form of the language model's conversations, such as v1",
            "silent",
        )
    start = document.get("mm_use_im_start_end")
    if _is_on(start) and projector is not None and projector.value:
        yield _clash(
            (start, projector),
            "mm_use_im_start_end asks the projector's file for embeddings of tokens",
            "KeyError model.embed_tokens.weight where it was pretrained without the two tokens",
            "write --mm_use_im_start_end False",
            "load",
        )
    kind, base = document.get("mm_projector_type"), document.get("model_name_or_path")
    names = f"{base.value if base else ''} {projector.value if projector else ''}".lower()
    is_left_out = kind is None and not is_unknown(document, "mm_projector_type")
    if is_left_out and projector is not None and ("v1.5" in names or "mlp2x" in names):
        yield _clash(
            (projector, base),
            "the projector is built as `linear` where mm_projector_type is left out",
            "LLaVA 1.5 has mlp2x_gelu: Error(s) in loading state_dict",
            "write --mm_projector_type mlp2x_gelu",
            "load",
        )


def _tuned(document: Document) -> Iterator[Finding]:
    """LLaVA-NeXT ignores an unknown part in the comma-separated mm_tunable_parts."""
    at = document.get("mm_tunable_parts")
    if at is None or not isinstance(at.value, str):
        return
    odd = [each for each in at.value.split(",") if each not in _OPENED]
    if odd:
        yield _clash(
            (at, None),
            f"mm_tunable_parts names {odd[0]!r}, which is no part, and stays frozen",
            f"taken: {', '.join(_OPENED)}, with commas and no blanks",
            "write the name of the part",
            "silent",
        )


def _sharded(run: LintContext, document: Document) -> Iterator[Finding]:
    """A separate projector cannot be loaded into a LLaVA, whose own one stage 3 has sharded."""
    projector, base = document.get("pretrain_mm_mlp_adapter"), document.get("model_name_or_path")
    stage = stage_of(run)
    name = str(base.value).lower().rstrip("/").rpartition("/")[2] if base is not None else ""
    is_given = projector is not None and projector.value not in (None, "", "None")
    if is_given and stage.value == 3 and stage.place is not None and "llava" in name:
        yield _clash(
            (projector, stage.place),
            "pretrain_mm_mlp_adapter cannot be loaded into a LLaVA under ZeRO stage 3",
            "its projector is sharded already: size mismatch, current model is torch.Size([0])",
            "use ZeRO stage 2, or remove --pretrain_mm_mlp_adapter",
            "load",
        )


def _tower(document: Document, *, is_fork: bool) -> Iterator[Finding]:
    """LLaVA only accepts a folder or CLIP of two makers as vision tower; forks accept more."""
    tower, base = document.get("vision_tower"), document.get("model_name_or_path")
    is_named = document.get("mm_tunable_parts") is not None  # LLaVA-NeXT, which has SigLIP too
    if tower is not None and isinstance(tower.value, str) and not is_named and not is_fork:
        name = tower.value.lower()
        if _HUB.fullmatch(tower.value) and ("siglip" in name or "llava" in name):
            yield _clash(
                (tower, None),
                f"{tower.value} is no vision tower of LLaVA",
                "it supports the CLIP of openai or laion, or a folder: Unknown vision tower",
                "write openai/clip-vit-large-patch14-336, or the path of a folder",
                "load",
            )
    kind = document.get("mm_projector_type")
    name = str(base.value).lower() if base is not None else ""
    if kind is not None and kind.value == "linear" and _NEW_LLAVA.search(name):
        yield _clash(
            (kind, base),
            "mm_projector_type linear for a checkpoint whose projector is mlp2x_gelu",
            "its weights do not fit, and a new projector is made without them",
            "write --mm_projector_type mlp2x_gelu",
            "load",
        )


def _of_internvl(document: Document) -> Iterator[Finding]:
    for freeze, rank in (("freeze_llm", "use_llm_lora"), ("freeze_backbone", "use_backbone_lora")):
        at, lora = document.get(freeze), document.get(rank)
        is_off = at is not None and str(at.value).lower() == "false"
        if is_off and lora is not None and number_of(lora.value):
            found = _clash(
                (at, lora),
                f"{freeze} False opens nothing beside {rank}",
                "PEFT freezes what it wraps: LoRA alone is trained there",
                f"write --{freeze} True",
                "silent",
            )
            yield replace(found, severity="warning")
    frozen = [document.get(key) for key in ("freeze_llm", "freeze_mlp", "freeze_backbone")]
    if not all(_is_on(each) for each in frozen) or document.unknown & set(_OPENS):
        return
    if any(str(document.value(key, 0)).lower() not in ("0", "false") for key in _OPENS):
        return
    yield _clash(
        (frozen[0], frozen[2]),
        "freeze_llm, freeze_mlp and freeze_backbone leave nothing to train",
        "element 0 of tensors does not require grad: no LoRA is set, and no layer is trainable",
        "write --freeze_mlp False, or a rank as --use_llm_lora",
        "step",
    )


def _of_minicpm(run: LintContext, document: Document) -> Iterator[Finding]:
    lora, q_lora = document.get("use_lora"), document.get("q_lora")
    base, stage = document.get("model_name_or_path"), stage_of(run)
    if _is_on(q_lora) and not _is_on(lora) and not is_unknown(document, "use_lora"):
        yield _clash(
            (q_lora, lora),
            "q_lora does nothing without use_lora",
            "it is read where LoRA is put in",
            "write --use_lora true",
            "silent",
        )
    elif _is_on(q_lora) and base is not None and _is_whole(base):
        yield _clash(
            (q_lora, base),
            "q_lora quantises nothing: the base is loaded as it is stored",
            "it only prepares a base that is quantised, and of this one makes fp32",
            "take a checkpoint in int4, or remove --q_lora",
            "silent",
        )
    if _is_on(lora) and stage.value == 3 and stage.place is not None:
        found = _clash(
            (lora, stage.place),
            "use_lora copies embed_tokens and resampler, which ZeRO stage 3 has sharded",
            "modules_to_save are trained whole beside LoRA: reported as parameters of size 0",
            "use stage 2",
            "step",
        )
        yield replace(found, severity="warning")
    options = document.get("gradient_checkpointing_kwargs")
    if options is not None:
        yield _clash(
            (options, None),
            "gradient_checkpointing_kwargs is overwritten by the script",
            "it sets use_reentrant to false whatever is written",
            "remove --gradient_checkpointing_kwargs",
            "silent",
        )
    modules = document.get("lora_modules_to_save")
    if modules is not None and modules.value:
        yield _clash(
            (modules, None),
            "lora_modules_to_save is never read",
            "embed_tokens and resampler are saved, and vpm where tune_vision is true",
            "remove --lora_modules_to_save",
            "silent",
        )


def _of_parts(document: Document) -> Iterator[Finding]:
    """qwen-vl-finetune trains either the named parts or LoRA, not both."""
    parts = [document.get(key) for key in _PARTS]
    lora = document.get("lora_enable") or document.get("use_lora")
    if document.unknown & {*_PARTS, "lora_enable", "use_lora"}:
        return
    opened = next((each for each in parts if _is_on(each)), None)
    if _is_on(lora) and opened is not None:
        yield _clash(
            (opened, lora),
            f"{opened.path} does nothing beside lora_enable",
            "every weight is frozen, and LoRA is put into the language model's attention alone",
            f"remove --{opened.path}, or train without LoRA",
            "silent",
        )
    elif not _is_on(lora) and opened is None:
        yield _clash(
            (parts[2], parts[0]),
            "tune_mm_vision, tune_mm_mlp and tune_mm_llm are all off, and nothing is trained",
            "element 0 of tensors does not require grad",
            "write True for one of the three",
            "step",
        )


def _of_qwen(run: LintContext, document: Document) -> Iterator[Finding]:
    lora, base = document.get("use_lora"), document.get("model_name_or_path")
    q_lora, stage = document.get("q_lora"), stage_of(run)
    name = str(base.value).lower() if base is not None else ""
    if base is None or not _is_on(lora) or "qwen" not in name or "qwen2" in name:
        return
    if stage.value == 3 and "chat" not in name and not _is_on(q_lora) and stage.place is not None:
        yield _clash(
            (lora, stage.place),
            "LoRA of a base model is refused under ZeRO stage 3",
            "wte and lm_head would be trained too: ZeRO3 is incompatible with LoRA when finetuning",
            "use ZeRO stage 2, or the chat model",
            "init",
        )
    tower = document.get("fix_vit")
    if tower is not None and str(tower.value).lower() == "false":
        yield _clash(
            (tower, lora),
            "fix_vit False opens nothing beside use_lora",
            "it is read where the whole model is trained: LoRA freezes the tower with the base",
            "write --fix_vit True",
            "silent",
        )
    if _is_on(q_lora) and _is_whole(base):
        yield _clash(
            (q_lora, base),
            f"q_lora needs a checkpoint of GPTQ, and {base.value} is none",
            "GPTQConfig(bits=4) needs a data set to quantise by, and has none",
            "take a checkpoint in int4, such as Qwen/Qwen-7B-Chat-Int4, or remove --q_lora",
            "load",
        )
    bf16 = document.get("bf16")
    if _is_on(q_lora) and _is_on(bf16):
        yield _clash(
            (bf16, q_lora),
            "q_lora cannot be computed in bf16",
            "kernels of GPTQ are for fp16 alone",
            "write --fp16 True in place of --bf16",
            "step",
        )


def _is_whole(base: Place) -> bool:
    """Whether the base is a repository whose name mentions no quantization."""
    return bool(_HUB.fullmatch(str(base.value))) and not _INT4.search(str(base.value))


def _is_on(place: Place | None) -> bool:
    return place is not None and is_true(place.value)


def _clash(
    places: tuple[Place | None, Place | None],
    what: str,
    why: str,
    mended: str,
    consequence: Consequence = "init",
) -> Finding:
    first, *rest = [each for each in places if each is not None]
    return Finding(
        what,
        (
            first.label("at odds" if rest else "does not fit"),
            *(each.label("", primary=False) for each in rest),
        ),
        (why,),
        mended,
        consequence=consequence,
    )
