"""A word that LLaVA's script does not have."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from tunec.compiler.lints.launch.examples import packages
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run

_FORMS: Final = (
    *("v0", "v0.5", "v1", "vicuna_v1", "llama_2", "mistral_instruct", "chatml_direct", "default"),
    *("mistral_direct", "plain", "v0_plain", "llava_v0", "v0_mmtag", "llava_v1", "v1_mmtag"),
    *("llava_llama_2", "mpt"),
)
"""haotian-liu/LLaVA c121f04 llava/conversation.py `conv_templates`, and two that `train` knows."""


class _Word(NamedTuple):
    """What a flag takes, and what comes of another word."""

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
        "a form that is not known is taken for vicuna_v1, and nothing reports it",
        "silent",
    ),
}
_NEXT: Final = (
    "mm_tunable_parts",
    "image_grid_pinpoints",
    "mm_spatial_pool_mode",
    "mm_newline_position",
)
"""Flags of LLaVA-NeXT, which has other words."""


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("hf", "sft"):
        is_llava = packages(run, document) == {"llava"}
        if not is_llava or document.is_view or any(document.get(key) for key in _NEXT):
            continue
        for key, word in _WORDS.items():
            at = document.get(key)
            text = None if at is None else at.node.written or str(at.value)
            if at is None or text is None or word.taken.fullmatch(text):
                continue
            yield Finding(
                f"{key} {text} is none of LLaVA's",
                (at.label("not known"),),
                (word.why,),
                f"one of {word.told}",
                consequence=word.consequence,
                severity="warning" if word.consequence == "silent" else None,
            )


RULE = Rule(
    name="script-word-unknown",
    severity="error",
    consequence="load",
    consumers=("transformers",),
    sources=(
        (
            "haotian-liu/LLaVA c121f04 llava/model/multimodal_projector/builder.py "
            "`build_vision_projector`; multimodal_encoder/clip_encoder.py `feature_select`; "
            "llava/train/train.py `train`: else conv_templates['vicuna_v1']; "
            "`LazySupervisedDataset.__getitem__`: image_aspect_ratio == 'pad'"
        ),
    ),
    check=_check,
)
