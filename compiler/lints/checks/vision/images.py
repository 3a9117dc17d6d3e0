"""Images, and the sequence that holds their tokens."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tunec.compiler.diagnostics.diagnostic import Fix, Severity, Term
from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document, Place, also
from tunec.compiler.lints.facts.lora import MINICPM_FLAGS, is_minicpm
from tunec.compiler.lints.facts.model import sees
from tunec.compiler.lints.rule import Finding, keys, rule
from tunec.schemas.frozen import replace

if TYPE_CHECKING:
    from tunec.schemas.models.architecture import ImageTokens


_TEXT: Final = 256
"""Tokens of a short question with its answer and template."""
_FEW: Final = 3
_MOST: Final = ("image_max_pixels", "max_pixels", "image_resolution")
_CUT: Final = (
    "image tokens that are cut off no longer match the image's features: the forward fails"
)


@rule(
    "error",
    "step",
    consumers=("transformers",),
    reads=(
        *keys("sft|dpo", "max_length", "max_seq_length"),
        "llamafactory:cutoff_len",
        "minicpm-v:model_max_length",
    ),
)
def image_longer_than_sequence(run: LintContext) -> Iterator[Finding]:
    """An image has more tokens than the sequence can hold."""
    length = run.slot("data.sequence")
    at = run.place(length)
    if length is None or at is None or at.document.kind not in _CUTS:
        return
    if at.document.kind in TRL and run.own.holds("skip_prepare_dataset"):
        return  # the script makes batches of its own, and TRL cuts nothing
    is_seen = _has_images(run, at.document)
    for each in _longer(run, at, length.value):
        yield each if is_seen else replace(each, severity="note")


_OF_IMAGES: Final = re.compile(
    r"(?i)image|video|vision|visual|multi-?modal|mllm|media|pixels|\bvl|vl\b|_vl|vl_|llava|ocr|chart"
)


def _has_images(run: LintContext, document: Document) -> bool:
    """Whether the model's name, or a key or word of the file, shows that there are images."""
    named = run.model_name or ""
    return _OF_IMAGES.search(f"{named}\n{document.text}") is not None


def _longer(run: LintContext, at: Place, length: object) -> Iterator[Finding]:
    images = run.model.architecture.images if run.model is not None else None
    if run.model is None:
        yield from _by_name(run, at, length)
    if images is None:
        return
    if at.document.is_compiled:
        return  # the plan's sequence holds the images of its spec, in their size
    if not isinstance(length, int) or length < 1 or run.model is None:
        return
    if run.model.architecture.family in ("chatglm", "visualglm"):
        return  # one token in the sequence stands for the image, and is replaced in the model
    yield from _of(run, at, images, length)


_BY_NAME: Final = (
    (re.compile(r"(?i)qwen2(\.5)?-?vl|qvq-72b"), (14, 2), 12845056),
    (re.compile(r"(?i)qwen3(\.5)?-?vl"), (16, 2), 16777216),
)
"""Patch size and number of patches merged per side: `patch_size` and `spatial_merge_size` in
`vision_config` of the models' config.json, equal in every size of the family; and the maximum
pixels of their preprocessor_config.json (`PUBLISHED_BOUNDS` of the image rules)."""


def _by_name(run: LintContext, at: Place, length: object) -> Iterator[Finding]:
    """Report models outside the catalogue, of families whose image tokens depend on pixels only."""
    named = run.model_name
    if named is None or not isinstance(length, int) or length < 1:
        return
    found = next((each[1:] for each in _BY_NAME if each[0].search(named)), None)
    most = _whole_number(at.document, _MOST) or _bound_of_llamafactory(run, at.document)
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
    """Report images too long under TRL, where only the model's own processor limits their size."""
    tokens = pixels // patch**2
    if tokens >= length:
        note = f"its processor lets {pixels} pixels through, {tokens} tokens"
        yield _too_long(at, None, tokens, (length, note), "warning")


def _bound_of_llamafactory(run: LintContext, document: Document) -> int | None:
    """The pixels to which LLaMA-Factory scales images down by default; None if it does not."""
    is_open = {*_MOST, _SIDES} & document.unknown or document.get(_SIDES) is not None
    if is_open or document.kind != "llamafactory" or run.runs("llamafactory>=0.9") is False:
        return None
    return _DEFAULT_PIXELS if run.runs("llamafactory>=0.9.2") is not False else _FORMER_PIXELS


_DEFAULT_PIXELS: Final = 768 * 768
"""llamafactory 0.9.2 to 0.9.5 hparams/model_args.py `image_max_pixels`."""
_SIDES: Final = "image_resolution"
_FORMER_PIXELS: Final = 512 * 512
"""llamafactory 0.9.0 and 0.9.1 `image_resolution`, in 0.9.0 for each side."""
_CUTS: Final = frozenset({"llamafactory", "sft", "dpo", "minicpm-v"})


def _of(run: LintContext, at: Place, images: "ImageTokens", length: int) -> Iterator[Finding]:
    most = _whole_number(at.document, _MOST)
    bound = None if most is not None else _bound_of_llamafactory(run, at.document)
    pixels = most.value if most is not None else bound
    tokens = _tokens(images, pixels)
    if tokens is None:
        return
    if bound is not None and images.max_pixels:
        note = f"LLaMA-Factory bounds an image to {bound} pixels by default: {tokens} tokens"
        if tokens >= length:
            yield _too_long(at, None, tokens, (length, note), "warning")
        return
    places = (at.label("cuts the sequence"), *also(most))
    terms = (Term("one image", tokens, "tokens"), Term("the sequence", length, "tokens"))
    note = (
        f"{pixels} pixels / {(images.patch * images.merge) ** 2} a token = {tokens} tokens"
        if most is not None
        else f"{run.model.path if run.model else 'the model'}: {tokens} tokens for one image"
    )
    if tokens >= length:
        fixed = most is not None or images.max_pixels == 0
        yield Finding(
            f"an image takes up to {tokens} tokens, but a sequence holds {length}",
            places,
            (note, _CUT),
            f"raise the length to {tokens + _TEXT} or more, or bound the image's pixels",
            sum=terms,
            severity=None if fixed else "warning",
        )
    elif most is not None:
        yield from _few(at, most, tokens, (length, note))


def _few(at: Place, most: Place, tokens: int, told: tuple[int, str]) -> Iterator[Finding]:
    """Report a sequence with room for fewer than three images beside the text."""
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
        f"an image takes up to {tokens} tokens, but a sequence holds {length}",
        (at.label("cuts the sequence"), *also(bound)),
        (note, _CUT),
        f"raise the length to {tokens + _TEXT} or more, or bound the image's pixels",
        sum=(Term("one image", tokens, "tokens"), Term("the sequence", length, "tokens")),
        severity=severity if bound is None else None,
    )


def _whole_number(document: Document, keys: tuple[str, ...]) -> Place | None:
    found = (document.get(key) for key in keys)
    return next((at for at in found if at is not None and isinstance(at.value, int)), None)


def _tokens(images: "ImageTokens", pixels: int | None) -> int | None:
    """The maximum number of tokens of one image; None if there is no limit."""
    from tunec.compiler.analyses.architecture.image_tokens import UnfitImage, image_tokens

    if images.max_pixels:
        bound = min(pixels, images.max_pixels) if pixels else images.max_pixels
        return max(1, bound // (images.patch * images.merge) ** 2)
    if images.tokens and images.max_slices == 1:
        try:
            return image_tokens(images, images.image_size, images.image_size)
        except UnfitImage:
            return None
    return images.tokens * (_slices(images, pixels) + 1) or None


def _slices(images: "ImageTokens", pixels: int | None) -> int:
    """The most tiles of an image with that many pixels and sides of at least half a tile."""
    side, most = images.image_size, images.max_slices
    if not pixels or not side:
        return most
    widths = ((each, max(side // 2, (each - 1) * side + 1)) for each in range(1, most + 1))
    fit = ((each, pixels // width) for each, width in widths)
    tiles = (each * -(-height // side) for each, height in fit if height >= side // 2)
    return min(most, max(tiles, default=1))


_GLM: Final = "training_args.remove_unused_columns"
_OUTPUT: Final = {_GLM: "training_args.output_dir", "remove_unused_columns": "output_dir"}
"""The required argument beside each key."""


_KEPT: Final = "trl>=0.22"
"""Releases that keep the columns of messages and images."""


@rule(
    "warning",
    "step",
    consumers=("transformers",),
    reads=(
        "hf:remove_unused_columns",
        "glm4:training_args.output_dir",
        *keys("trainer|model", *MINICPM_FLAGS),
        "minicpm-v:output_dir",
        "sft:dataset_kwargs.skip_prepare_dataset",
    ),
)
def columns_of_images_removed(run: LintContext) -> Iterator[Finding]:
    """The trainer removes columns that a vision-language model's collator needs."""
    yield from _of_own_collator(run)
    for document in run.documents:
        if document.kind not in ("hf", "glm4") and not is_minicpm(document):
            continue
        key = _GLM if document.kind == "glm4" else "remove_unused_columns"
        if document.kind != "hf" and document.get(_OUTPUT[key]) is None:
            continue  # the launcher's part of a script: the trainer's arguments stand elsewhere
        if document.is_view or key in document.unknown or not _sees(run, document):
            continue
        at = document.get(key)
        if at is not None and at.value is not True:
            continue
        start = at or next(iter(document.found.values()), None)
        if start is None or (at is None and document.kind == "hf"):
            continue
        edit = Fix((at.replaced(value=False),), "safe") if at is not None else None
        yield Finding(
            f"remove_unused_columns is true{'' if at is not None else ' by default'}: "
            "images do not reach the collator",
            (start.label("removes what forward does not name"),),
            ("the model's forward has no arguments of the data's own column names",),
            "write remove_unused_columns: false",
            edit,
        )


def _of_own_collator(run: LintContext) -> Iterator[Finding]:
    """Report the SFT trainer before TRL 0.22, which leaves images to the script's own collator."""
    if run.runs(_KEPT) is True or not sees(run):
        return
    for document in run.of("sft"):
        skip = where(document, "dataset_kwargs.skip_prepare_dataset=true")
        at = document.get("remove_unused_columns")
        is_left = at is None and run.runs(_KEPT) is False
        if skip is None or document.is_view or not (is_left or (at is not None and at.value)):
            continue
        yield Finding(
            "remove_unused_columns is true: images do not reach the script's own collator",
            ((at or skip).label("removes what forward does not name"),),
            ("No columns in the dataset match the model's forward method signature",),
            "write remove_unused_columns: false",
            Fix((at.replaced(value=False),), "safe") if at is not None else None,
        )


def _sees(run: LintContext, document: Document) -> bool:
    return is_minicpm(document) or sees(run)


_PAIRS: Final = (
    ("image_min_pixels", "image_max_pixels"),
    ("video_min_pixels", "video_max_pixels"),
    ("min_pixels", "max_pixels"),
)


@rule(
    "error",
    "parse",
    consumers=("llamafactory", "transformers"),
    reads=keys("trainer|model|minicpm-v", *(low for low, _ in _PAIRS)),
)
def pixel_bounds_crossed(run: LintContext) -> Iterator[Finding]:
    """The minimum number of an image's pixels is larger than the maximum."""
    for document in run.documents:
        if document.is_view:
            continue
        for low_key, high_key in _PAIRS:
            low, high = document.get(low_key), document.get(high_key)
            if low is None or high is None:
                continue
            if (
                isinstance(low.value, int)
                and isinstance(high.value, int)
                and low.value > high.value
            ):
                yield Finding(
                    f"{low_key} {low.value} is more than {high_key} {high.value}",
                    (low.label("more than the most"), high.label("", primary=False)),
                    ("LLaMA-Factory refuses the pair; others scale up and down in turn",),
                    "exchange them",
                )
