"""An image has more tokens than the sequence may have."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tunec.compiler.diagnostics.diagnostic import Severity, Term
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place

if TYPE_CHECKING:
    from tunec.schemas.models.architecture import ImageTokens
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_TEXT: Final = 256
"""Tokens that a short question with its answer and template takes."""
_FEW: Final = 3
_MOST: Final = ("image_max_pixels", "max_pixels", "image_resolution")
_CUT: Final = (
    "image tokens that are cut off no longer match the image's features: the forward fails"
)


def _check(run: Run) -> Iterator[Finding]:
    length = run.slot("data.sequence")
    at = run.place(length)
    if length is None or at is None or at.document.kind not in _CUTS:
        return
    images = run.model.architecture.images if run.model is not None else None
    if run.model is None:
        yield from _by_name(run, at, length.value)
    if images is None:
        return
    if at.document.is_compiled:
        return  # the plan's sequence holds the images of its spec, in their size
    if not isinstance(length.value, int) or length.value < 1 or run.model is None:
        return
    if run.model.architecture.family in ("chatglm", "visualglm"):
        return  # one token in the sequence stands for the image, and is replaced in the model
    yield from _of(run, at, images, length.value)


_BY_NAME: Final = (
    (re.compile(r"(?i)qwen2(\.5)?-?vl|qvq-72b"), (14, 2), 12845056),
    (re.compile(r"(?i)qwen3(\.5)?-?vl"), (16, 2), 0),
)
"""Sides of a patch and patches that are merged: config.json of the models, `vision_config`,
`patch_size` and `spatial_merge_size`, alike in every size of the family; and the most pixels of
Qwen2-VL's and Qwen2.5-VL's preprocessor_config.json, 0 where they are not told."""


def _by_name(run: Run, at: Place, length: object) -> Iterator[Finding]:
    """Models that are not in the catalogue, of families whose images are told by pixels alone."""
    named = run.model_name
    if named is None or not isinstance(length, int) or length < 1:
        return
    found = next((each[1:] for each in _BY_NAME if each[0].search(named)), None)
    most = _said(at.document, _MOST) or _bound_of_llamafactory(run, at.document)
    if found is None:
        return
    sides, own = found
    if most is None:
        if at.document.kind in ("sft", "dpo"):
            yield from _by_processor(at, own, sides[0] * sides[1], length)
        return
    patch = sides[0] * sides[1]
    pixels = most.value if isinstance(most, Place) else most
    tokens = pixels // patch**2
    told = length, f"{pixels} pixels / {patch**2} a token"
    if tokens >= length:
        yield _too_long(at, most, tokens, told, None)
    elif isinstance(most, Place) and tokens:
        yield from _few(at, most, tokens, told)


def _by_processor(at: Place, pixels: int, patch: int, length: int) -> Iterator[Finding]:
    """TRL hands images on as they are, and the model's own processor bounds them."""
    tokens = pixels // patch**2
    if tokens >= length:
        note = f"its processor lets {pixels} pixels through, {tokens} tokens"
        yield _too_long(at, None, tokens, (length, note), "warning")


def _bound_of_llamafactory(run: Run, document: Document) -> int | None:
    """Pixels to which it scales an image down where nobody says."""
    is_late = run.runs("llamafactory>=0.9.2") is not False
    is_open = set(_MOST) & document.unknown or document.kind != "llamafactory"
    return _DEFAULT_PIXELS if is_late and not is_open else None


_DEFAULT_PIXELS: Final = 768 * 768
"""llamafactory 0.9.2 to 0.9.5 hparams/model_args.py `image_max_pixels`."""
_CUTS: Final = frozenset({"llamafactory", "sft", "dpo", "minicpm-v"})


def _of(run: Run, at: Place, images: "ImageTokens", length: int) -> Iterator[Finding]:
    most = _said(at.document, _MOST)
    bound = None if most is not None else _bound_of_llamafactory(run, at.document)
    pixels = most.value if most is not None else bound
    tokens = _tokens(images, pixels)
    if tokens is None:
        return
    if bound is not None and images.max_pixels:
        note = f"image_max_pixels is {bound} where nobody says: {tokens} tokens"
        if tokens >= length:
            yield _too_long(at, None, tokens, (length, note), "warning")
        return
    places = (at.label("cuts the sequence"), *([most.label("", primary=False)] if most else []))
    terms = (Term("one image", tokens, "tokens"), Term("the sequence", length, "tokens"))
    note = (
        f"{pixels} pixels / {(images.patch * images.merge) ** 2} a token = {tokens} tokens"
        if most is not None
        else f"{run.model.path if run.model else 'the model'}: {tokens} tokens for one image"
    )
    if tokens >= length:
        fixed = most is not None or images.max_pixels == 0
        yield Finding(
            f"an image takes up to {tokens} tokens, and a sequence {length}",
            places,
            (note, _CUT),
            f"raise the length to {tokens + _TEXT} or more, or bound the image's pixels",
            sum=terms,
            severity=None if fixed else "warning",
        )
    elif most is not None:
        yield from _few(at, most, tokens, (length, note))


def _few(at: Place, most: Place, tokens: int, told: tuple[int, str]) -> Iterator[Finding]:
    """A sequence with room for a picture or two beside the text."""
    length, note = told
    room = (length - _TEXT) // tokens
    if room >= _FEW:
        return
    yield Finding(
        f"a sequence of {length} tokens has room for {room} image{'' if room == 1 else 's'} of "
        f"{tokens}",
        (at.label("cuts the sequence"), most.label("", primary=False)),
        (note, _CUT, f"{_TEXT} tokens are kept for text; samples with fewer images are whole"),
        "raise the length, or lower the bound of pixels, if samples have more images",
        sum=(Term("one image", tokens, "tokens"), Term("the sequence", length, "tokens")),
        severity="warning",
    )


def _too_long(
    at: Place,
    most: Place | int | None,
    tokens: int,
    told: tuple[int, str],
    severity: Severity | None,
) -> Finding:
    length, note = told
    bound = most if isinstance(most, Place) else None
    return Finding(
        f"an image takes up to {tokens} tokens, and a sequence {length}",
        (at.label("cuts the sequence"), *([bound.label("", primary=False)] if bound else [])),
        (note, _CUT),
        f"raise the length to {tokens + _TEXT} or more, or bound the image's pixels",
        sum=(Term("one image", tokens, "tokens"), Term("the sequence", length, "tokens")),
        severity=severity if bound is None else None,
    )


def _said(document: Document, keys: tuple[str, ...]) -> Place | None:
    found = (document.get(key) for key in keys)
    return next((at for at in found if at is not None and isinstance(at.value, int)), None)


def _tokens(images: "ImageTokens", pixels: int | None) -> int | None:
    """The most tokens of one image; None where nothing bounds it."""
    from tunec.compiler.analyses.architecture.image_tokens import UnfitImage, image_tokens

    if images.max_pixels:
        bound = min(pixels, images.max_pixels) if pixels else images.max_pixels
        return max(1, bound // (images.patch * images.merge) ** 2)
    if images.tokens and images.max_slices == 1:
        try:
            return image_tokens(images, images.image_size, images.image_size)
        except UnfitImage:
            return None
    return images.tokens * (images.max_slices + 1) or None


RULE = Rule(
    name="image-longer-than-sequence",
    severity="error",
    consequence="step",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.46.3 to 5.23.0 models/qwen2_vl/modeling_qwen2_vl.py: Image features "
            "and image tokens do not match; image_processing_qwen2_vl.py `smart_resize`"
        ),
        (
            "trl 1.16.0 trainer/sft_trainer.py, dpo_trainer.py: ValueError where `max_length` cuts "
            "the tokens of an image"
        ),
        "llamafactory 0.9.5 data/mm_plugin.py `_preprocess_image`: scaled to image_max_pixels",
        "hiyouga/LlamaFactory#6559, #5968; huggingface/trl#5927; TIGER-AI-Lab/VLM2Vec#38",
    ),
    check=_check,
)
