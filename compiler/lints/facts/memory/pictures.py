"""Pictures of a sample of a model that sees, as few and as small as the run's files leave them.

What a file bounds is taken at its bound, as the text is at the longest that is allowed; where
nobody bounds it, the picture is the smallest that the family's processor makes.
"""

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.facts.counts import is_whole
from tunec.compiler.lints.facts.lora import is_true
from tunec.compiler.lints.facts.memory.scripts import script_of
from tunec.compiler.lints.place import Place
from tunec.schemas.frozen import replace

if TYPE_CHECKING:
    from tunec.schemas.models.architecture import Architecture, ImageTokens

_MOST_PIXELS: Final = ("image_max_pixels", "max_pixels", "image_resolution")
"""llamafactory 0.9.1 to 0.9.5 hparams/model_args.py; QwenLM/Qwen3-VL 9658872 qwen-vl-finetune/
qwenvl/train/argument.py; 2U1/Qwen-VL-Series-Finetune 93fef86 src/params.py."""
_LEAST_PIXELS: Final = ("image_min_pixels", "min_pixels")
_MOST_SLICES: Final = ("max_slice_nums", "max_dynamic_patch")
"""OpenBMB/MiniCPM-V 0dbb566 finetune/finetune.py; OpenGVLab/InternVL 2410d1d internvl_chat/
internvl/train/internvl_chat_finetune.py."""
_SLICES: Final = "dynamic_image_size"
"""Without which InternVL's script cuts no picture."""
_MANY: Final = 64
"""Slices beyond which none are counted."""
_SIDE: Final = ("force_image_size",)
"""Pixels of a side of a slice, where InternVL's script changes them."""
_OF_PICTURES: Final = (
    *(*_MOST_PIXELS, *_LEAST_PIXELS, "image_folder", "media_dir", "image_dir"),
    *("freeze_vision_tower", "freeze_multi_modal_projector"),
)
"""Keys that nobody writes whose data have no pictures."""
_ANY_SIZE: Final = 8192
"""Pixels of a side that every bound is below."""
_APART: Final = ("chatglm",)
"""Families of which one token of the text stands for the picture: THUDM/glm-4v-9b
modeling_chatglm.py `ChatGLMModel.forward` puts its states into the place of that token."""


class Pictures(NamedTuple):
    """What the slots of `data` say of a sample, in their order."""

    images: int = 0
    width: int = 0
    height: int = 0
    image_tokens: int = 0
    """Positions of the language model's sequence that pictures fill."""
    vision_tokens: int = 0
    """Patches that the tower runs."""


NO_PICTURES: Final = Pictures()


def seen(run: LintContext, architecture: "Architecture") -> Pictures:
    """The picture of a sample; none where nothing says that there are any."""
    rule = architecture.images
    if architecture.kind != "vision-language" or rule is None or not _has_pictures(run):
        return NO_PICTURES
    from tunec.compiler.analyses.architecture.image_tokens import image_tokens, vision_tokens

    if _number(run, _SIDE) not in (None, rule.image_size):
        return NO_PICTURES
    bounded, side = _bounded(run, rule)
    size = bounded, side, side
    return Pictures(1, side, side, image_tokens(*size), sum(vision_tokens(*size)))


def within(architecture: "Architecture", length: int | None, found: Pictures) -> Pictures:
    """A picture that a sequence of so many tokens holds at the most; None: nobody says how many."""
    if length is None or architecture.family in _APART:
        return found
    return found._replace(image_tokens=min(found.image_tokens, length))


def text_tokens(architecture: "Architecture", length: int | None, found: Pictures) -> int:
    """Tokens of a sample that are no picture's; of unknown length, as few as there can be."""
    if length is None or architecture.family in _APART:
        return length or int(not found.image_tokens)
    return length - found.image_tokens


def _has_pictures(run: LintContext) -> bool:
    if script_of(run) is not None or run.value("data.images", 0):
        return True
    if any(run.said("trainer", key) for key in _OF_PICTURES):
        return True
    scripts = (each.value("script") for each in run.of("launch"))
    return any("vlm" in str(words[0]) for words in scripts if isinstance(words, list) and words)


def _bounded(run: LintContext, rule: "ImageTokens") -> tuple["ImageTokens", int]:
    """The family's rule within the files' bounds, and the side of the picture to ask it about."""
    if rule.rule in ("internvl", "minicpm-v"):
        slices = min(_number(run, _MOST_SLICES) or 1, _MANY)
        if rule.rule == "internvl" and not any(map(_is_on, run.each("trainer", _SLICES))):
            slices = 1
        return replace(rule, max_slices=slices), _ANY_SIZE if slices > 1 else rule.image_size
    if not rule.max_pixels:
        return rule, rule.image_size
    factor = (rule.patch * rule.merge) ** 2
    most, least = _number(run, _MOST_PIXELS), _number(run, _LEAST_PIXELS)
    if most is None:
        return replace(rule, min_pixels=min(max(least or 0, factor), rule.max_pixels)), 1
    return replace(rule, max_pixels=min(max(most, factor), rule.max_pixels)), _ANY_SIZE


def _is_on(at: Place) -> bool:
    return is_true(at.value)


def _number(run: LintContext, keys: tuple[str, ...]) -> int | None:
    """The number that a file gives one of the keys; a plan's own pictures have their size."""
    of = ("trainer", "minicpm-v")
    places = (place for kind in of for key in keys for place in run.each(kind, key))
    found: Any = next((at.value for at in places if not at.document.is_compiled), None)
    return found if is_whole(found) and found > 0 else None
