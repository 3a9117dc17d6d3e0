"""Scripts that truncate images, values of their flags, and options that do not support images."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from tunec.compiler.diagnostics.diagnostic import Fix, Severity, Term
from tunec.compiler.lints.conditions import first_keys, where
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.launch import packages
from tunec.compiler.lints.facts.lora import MINICPM_FLAGS, is_minicpm, is_true
from tunec.compiler.lints.facts.model import sees
from tunec.compiler.lints.rule import Consequence, Finding, keys, rule
from tunec.schemas.frozen import replace

_SIDES: Final = re.compile(r"patch(\d+)(?:-(\d+))?$")
"""`clip-vit-large-patch14-336`: patches of 14 pixels in images of 336."""
_SIDE: Final = 224
_LENGTH_OF_LLAVA: Final = 512
_LENGTH_OF_QWEN: Final = 512
_PIXELS: Final = 28 * 28 * 576
"""QwenLM/Qwen3-VL 9658872 qwen-vl-finetune/qwenvl/train/argument.py: the default of max_pixels."""
_OF_LLAVA: Final = ("vision_tower", "image_folder", "model_name_or_path")
"""Flags of a script that puts images into a language model's sequence."""
_INTERNVL: Final = {
    "force_image_size": 448,
    "down_sample_ratio": 0.5,
    "max_dynamic_patch": 12,
    "max_seq_length": 8192,
}
_QWEN_1: Final = re.compile(r"(?i)qwen-vl")
_OF_QWEN_1: Final = 258
"""Qwen/Qwen-VL visual.py: 256 queries; QwenLM/Qwen-VL aa00ed0 finetune.py `preprocess`: cut at
max_len; modeling_qwen.py asserts that each image that begins also ends."""
_PATCH: Final = 14
_QUERIES: Final = ((re.compile(r"(?i)minicpm-llama3-v"), 96), (re.compile(r"(?i)minicpm"), 64))
"""`query_num` of the models' config.json: MiniCPM-Llama3-V 2.5; MiniCPM-V 2.0, 2.6 and later."""


@rule(
    "error",
    "step",
    consumers=("transformers",),
    reads=keys("trainer", "conv_style", *MINICPM_FLAGS, "dataset_use", "fix_vit", "vision_tower"),
)
def script_cuts_images(run: LintContext) -> Iterator[Finding]:
    """A vision-language model's script truncates sequences to fewer tokens than its images have."""
    for document in run.of("hf", "sft"):
        if document.is_view or document.format != "shell":
            continue
        if document.get("conv_style") and document.get("force_image_size"):
            yield from _of_internvl(document)
        elif is_minicpm(document):
            yield from _of_minicpm(document)
        elif document.get("dataset_use") and document.get("tune_mm_llm"):
            yield from _of_qwen(document)
        elif document.get("fix_vit") and _QWEN_1.search(str(document.value("model_name_or_path"))):
            yield from _of_qwen_1(document)
        elif all(document.get(each) for each in _OF_LLAVA):
            yield from _of_llava(document)


def _of_internvl(document: Document) -> Iterator[Finding]:
    said = {key: document.get(key) for key in _INTERNVL}
    if document.unknown & said.keys():
        return
    values = {key: at.value if at else _INTERNVL[key] for key, at in said.items()}
    if not all(isinstance(each, int | float) for each in values.values()):
        return
    is_dynamic = is_true(document.value("dynamic_image_size"))
    tiles = int(values["max_dynamic_patch"]) if is_dynamic else 1
    tiles += is_dynamic and tiles > 1 and is_true(document.value("use_thumbnail"))
    cells = int(values["force_image_size"]) // _PATCH
    tokens = tiles * int(cells**2 * values["down_sample_ratio"] ** 2)
    note = f"{tiles} tiles x ({cells} x {values['down_sample_ratio']})^2"
    yield from _cut(said["max_seq_length"], int(values["max_seq_length"]), tokens, (note, "step"))


def _of_minicpm(document: Document) -> Iterator[Finding]:
    at, slices = document.get("model_max_length"), document.get("max_slice_nums")
    base = document.get("model_name_or_path")
    if base is None or {"model_max_length", "max_slice_nums"} & document.unknown:
        return
    queries = next((n for pattern, n in _QUERIES if pattern.search(str(base.value))), None)
    most = slices.value if slices is not None else 9
    length = at.value if at is not None else 2048
    if queries is None or not isinstance(most, int) or not isinstance(length, int):
        return
    note = f"({most} slices + the whole) x {queries} tokens"
    yield from _cut(at or slices, length, (most + 1) * queries, (note, "step"))


def _of_qwen(document: Document) -> Iterator[Finding]:
    """Report Qwen's script if it truncates a sample after it has counted the image tokens.

    Samples that are joined are not truncated.
    """
    keys = ("model_max_length", "max_pixels", "data_flatten", "data_packing")
    at, pixels = document.get("model_max_length"), document.get("max_pixels")
    base = str(document.value("model_name_or_path", "")).lower()
    joins = any(is_true(document.value(key)) for key in keys[2:])
    if joins or document.unknown & {*keys, "model_name_or_path"}:
        return
    length = at.value if at is not None else _LENGTH_OF_QWEN
    most = pixels.value if pixels is not None else _PIXELS
    side = 32 if "qwen3" in base else 28
    if isinstance(length, int) and isinstance(most, int):
        note = f"max_pixels {most} / {side}^2"
        yield from _cut(at or pixels, length, most // side**2, (note, "step"))


def _of_qwen_1(document: Document) -> Iterator[Finding]:
    at = document.get("model_max_length")
    if at is not None and isinstance(at.value, int):
        note = "256 queries of the tower, between a token at each end"
        yield from _cut(at, at.value, _OF_QWEN_1, (note, "step"))


def _of_llava(document: Document) -> Iterator[Finding]:
    at, tower = document.get("model_max_length"), document.get("vision_tower")
    sides = _SIDES.search(str(tower.value)) if tower is not None else None
    length = at.value if at is not None else _LENGTH_OF_LLAVA
    if sides is None or not isinstance(length, int) or "model_max_length" in document.unknown:
        return
    tokens = (int(sides[2] or _SIDE) // int(sides[1])) ** 2
    note = f"({sides[2] or _SIDE} / {sides[1]})^2 tokens of {tower.value if tower else ''}"
    for each in _cut(at or tower, length, tokens, (note, "silent")):
        yield each if at is not None else replace(each, severity="warning")


def _cut(
    at: Place | None, length: int, tokens: int, told: tuple[str, Consequence]
) -> Iterator[Finding]:
    note, consequence = told
    if at is None or tokens < length:
        return
    yield Finding(
        f"an image takes up to {tokens} tokens, but a sequence holds {length}",
        (at.label("cuts the sequence"),),
        (note, "what is behind the image is cut off: no label is left, or the counts do not match"),
        f"raise the length to {tokens + 256} or more",
        sum=(Term("one image", tokens, "tokens"), Term("the sequence", length, "tokens")),
        consequence=consequence,
    )


_FORMS: Final = (
    *("v0", "v0.5", "v1", "vicuna_v1", "llama_2", "mistral_instruct", "chatml_direct", "default"),
    *("mistral_direct", "plain", "v0_plain", "llava_v0", "v0_mmtag", "llava_v1", "v1_mmtag"),
    *("llava_llama_2", "mpt"),
)
"""haotian-liu/LLaVA c121f04 llava/conversation.py `conv_templates`, and two values that `train`
handles."""


class _Word(NamedTuple):
    """The values that a flag takes, and the consequence of another value."""

    taken: re.Pattern[str]
    told: str
    why: str
    consequence: Consequence


_WORDS: Final = {
    "mm_projector_type": _Word(
        re.compile(r"linear|identity|mlp\d+x_gelu"),
        "linear, identity, mlp2x_gelu",
        "Unknown projector type",
        "load",
    ),
    "mm_vision_select_feature": _Word(
        re.compile(r"patch|cls_patch"), "patch, cls_patch", "Unexpected select feature", "step"
    ),
    "image_aspect_ratio": _Word(
        re.compile(r"square|pad"),
        "square, pad",
        "pad alone is looked for where samples are made: any other word trains on squares",
        "silent",
    ),
    "version": _Word(
        re.compile("|".join(map(re.escape, _FORMS))),
        "v1, plain, llava_llama_2, mpt and others of llava/conversation.py",
        "an unknown form is silently taken for vicuna_v1",
        "silent",
    ),
}
_NEXT: Final = (
    "mm_tunable_parts",
    "image_grid_pinpoints",
    "mm_spatial_pool_mode",
    "mm_newline_position",
    *("data_mixture", "tune_vision_tower", "tune_language_model", "vflan_no_system_prompt"),
)
"""Flags of LLaVA-NeXT, and of NVlabs/VILA, whose script has the same path as LLaVA's: both take
other values."""


@rule("error", "load", consumers=("transformers",), reads=keys("trainer", *_WORDS), unless="quoted")
def script_word_unknown(run: LintContext) -> Iterator[Finding]:
    """A flag has a value that LLaVA's script does not know."""
    for document in run.of("hf", "sft"):
        is_llava = packages(run, document) == {"llava"}
        if not is_llava or document.is_view or any(document.get(key) for key in _NEXT):
            continue
        for key, word in _WORDS.items():
            at = document.get(key)
            text = None if at is None else at.node.written or str(at.value)
            if at is None or text is None or word.taken.fullmatch(text):
                continue
            if run.own.holds(f'"{text}"'):
                continue  # this copy of LLaVA has it
            yield Finding(
                f"{key} {text} is none of LLaVA's",
                (at.label("not known"),),
                (word.why,),
                f"one of {word.told}",
                consequence=word.consequence,
                severity="warning" if word.consequence == "silent" else None,
            )


_OWN_COLLATOR: Final = "skip_prepare_dataset"
"""A word of scripts with their own collator: TRL then neither packs nor truncates."""
BY_MODEL: Final = "trl>=0.22,<1.11"
"""Releases whose SFT trainer checks the model for images; later releases check the data."""


@rule(
    "error",
    "init",
    consumers=("trl", "axolotl"),
    reads=("sft:packing", "sft:padding_free", "axolotl:sample_packing"),
)
def images_packed(run: LintContext) -> Iterator[Finding]:
    """Packing, or padding-free batches, are requested for samples with images."""
    by_model = run.runs(BY_MODEL)
    is_text = run.environment.has_text_alone and by_model is False
    if not sees(run) or run.own.holds(_OWN_COLLATOR) or is_text:
        return
    for document in run.of("sft"):
        for key in ("packing", "padding_free"):
            at = document.get(key)
            if at is not None and at.value is True and not document.is_view:
                why = "TRL refuses data with images here; text alone is packed"
                yield _finding(at, why, None if by_model else "warning")
    for document in run.of("axolotl"):
        at = document.get("sample_packing")
        if at is not None and at.value is True and document.get("processor_type") is not None:
            why = "Axolotl's collator of images takes one sample a sequence"
            yield _finding(at, why, "warning")


def _finding(at: Place, why: str, severity: Severity | None) -> Finding:
    return Finding(
        f"{at.path} does not work on samples with images",
        (at.label("not for images"),),
        (why,),
        f"write {at.path}: false",
        Fix((at.replaced(value=False),), "unsafe"),
        severity=severity,
    )


_ON_THE_FLY: Final = "samples with images are prepared when they are used, not before"
_ROWS: Final = (
    (("sft",), "assistant_only_loss", _ON_THE_FLY, "trl>=0.22,<1.15"),
    (("sft", "dpo"), "truncation_mode=keep_end", "the images lie in what is cut off", "trl>=1.0"),
    (("dpo",), "precompute_ref_log_probs", _ON_THE_FLY, "trl>=1.0"),
)
"""Kinds of files, condition, reason, and the releases that refuse the option."""


@rule(
    "error",
    "init",
    consumers=("trl",),
    reads=first_keys("sft|dpo", (condition for _, condition, _, _ in _ROWS)),
)
def option_not_for_images(run: LintContext) -> Iterator[Finding]:
    """A TRL option that its trainers do not support for samples with images."""
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
                f"TRL takes no {condition.replace('=', ': ')} where samples have images",
                (at.label("not for images"),),
                (why,),
                "remove it",
                severity=None if by_model else "warning",
            )


def _is_whole(document: Document) -> bool:
    """Whether sequences are not truncated: `max_length` is null."""
    length = document.get("max_length")
    return length is not None and length.value is None


_CHAT_FORMS: Final = (
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
_VICUNA: Final = re.compile(
    r"(?i)llava-v1[._]5-(?:\d+b|vicuna)|llava-v1[._]6-vicuna|(?:^|/)vicuna-"
)
_OTHERS: Final = frozenset({"llava_llama_2", "llama_2", "mpt", "mistral_instruct", "chatml_direct"})
"""haotian-liu/LLaVA c121f04 llava/conversation.py `conv_templates`: forms of other models."""


@rule(
    "error",
    "silent",
    consumers=("transformers",),
    reads=keys("trainer|minicpm-v", "model_name_or_path"),
)
def chat_form_of_another_model(run: LintContext) -> Iterator[Finding]:
    """A vision-language model's script uses the chat template of another language model."""
    yield from _chat_of_minicpm(run)
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
        f"{at.path} {at.value} does not fit {model.value}, whose form is {right}",
        (at.label("turns in another model's tokens"), model.label("", primary=False)),
        ("the samples are written in a form that the model was never trained with",),
        f"write --{at.path} {right}",
        Fix((at.replaced(right),), "unsafe"),
    )


def _chat_of_minicpm(run: LintContext) -> Iterator[Finding]:
    for document in run.of("trainer", "minicpm-v"):
        form, model = document.get("llm_type"), document.get("model_name_or_path")
        if document.is_view or model is None or not isinstance(model.value, str):
            continue
        right = next((name for pattern, name in _CHAT_FORMS if pattern.search(model.value)), None)
        if form is None and (document.target is None or document.target.name != "minicpm-v"):
            continue
        said = form.value if form is not None else "minicpm"
        if right is None or said == right or said not in _KNOWN:
            continue
        at = form if form is not None else model
        yield Finding(
            f"llm_type {said} does not fit {model.value}, whose language model is {right}'s",
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
