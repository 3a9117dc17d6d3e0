"""Options that are not made for images and videos."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix, Severity, Term
from tunec.compiler.lints.conditions import first_keys, where
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.model import sees
from tunec.compiler.lints.facts.training_loop import is_whole
from tunec.compiler.lints.rule import Finding, rule

BY_MODEL: Final = "trl>=0.22,<1.11"
"""Releases whose trainer of samples looks at the model; later ones look at the data."""


@rule(
    "images-packed",
    "error",
    "init",
    consumers=("trl", "axolotl"),
    sources=(
        (
            "trl 0.22.2 to 1.9.2 trainer/sft_trainer.py: Packing is not supported for "
            "vision-language models; Padding-free training is yet not supported; 1.16.0: for "
            "vision datasets"
        ),
        "axolotl 0.19.0 docs/multimodal.qmd: sample_packing: false",
    ),
    reads=("sft:packing", "sft:padding_free", "axolotl:sample_packing"),
)
def images_packed(run: LintContext) -> Iterator[Finding]:
    """Samples with images are to be packed."""
    if not sees(run):
        return
    by_model = run.runs(BY_MODEL)
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
        f"{at.path} over samples with images",
        (at.label("not for images"),),
        (why,),
        f"write {at.path}: false",
        Fix((at.replaced(value=False),), "unsafe"),
        severity=severity,
    )


_ON_THE_FLY: Final = "samples with images are prepared when they are used, not before"
_ROWS: Final = (
    (("sft",), "assistant_only_loss", _ON_THE_FLY, "trl>=0.22"),
    (("sft", "dpo"), "truncation_mode=keep_end", "the images lie in what is cut off", "trl>=1.0"),
    (("dpo",), "precompute_ref_log_probs", _ON_THE_FLY, "trl>=1.0"),
)
"""Kinds, condition, why, and the releases that refuse it."""


@rule(
    "option-not-for-images",
    "error",
    "init",
    consumers=("trl",),
    sources=(
        (
            "trl 0.22.2 to 1.9.2 trainer/sft_trainer.py `__init__` (by the model), 1.11.0 to "
            "1.16.0 (by the data set): Assistant-only loss is not yet supported for vision; from "
            "1.16 with transformers before 5.18 only"
        ),
        (
            "trl 1.0.0 to 1.16.0 trainer/sft_trainer.py, dpo_trainer.py: truncation_mode='keep_end'"
            " is not supported for vision-language models; precompute_ref_log_probs=True is not "
            "supported for vision datasets"
        ),
        "huggingface/trl#6545",
    ),
    reads=first_keys("sft|dpo", (condition for _, condition, _, _ in _ROWS)),
)
def option_not_for_images(run: LintContext) -> Iterator[Finding]:
    """An option of TRL that its trainers do not take for samples with images."""
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
                f"{condition.replace('=', ': ')} over samples with images",
                (at.label("not for images"),),
                (why,),
                "remove it",
                severity=None if by_model else "warning",
            )


def _is_whole(document: Document) -> bool:
    """Whether nothing is cut: `max_length` is null."""
    length = document.get("max_length")
    return length is not None and length.value is None


_SIDES: Final = ((re.compile(r"(?i)qwen2(\.5)?-?vl"), 28), (re.compile(r"(?i)qwen3-?vl"), 32))
"""Pixels of a token's side: config.json `vision_config`, patch_size x spatial_merge_size."""
_FRAMES: Final = 128
_PIXELS: Final = 256 * 256
"""llamafactory 0.9.2 to 0.9.5 hparams/model_args.py `video_maxlen`, `video_max_pixels`."""
_TOGETHER: Final = 2
"""Frames of one token: config.json `vision_config.temporal_patch_size`."""


@rule(
    "video-longer-than-sequence",
    "warning",
    "step",
    consumers=("llamafactory",),
    sources=(
        (
            "llamafactory 0.9.5 data/mm_plugin.py `_get_video_sample_indices`: at most "
            "video_maxlen frames; `_regularize_videos`: scaled to video_max_pixels; Qwen2VLPlugin "
            "`process_messages`: video_grid_thw"
        ),
        (
            "transformers 5.23.0 models/qwen2_vl/modeling_qwen2_vl.py: Video features and video "
            "tokens do not match"
        ),
    ),
    reads=("llamafactory:cutoff_len",),
)
def video_longer_than_sequence(run: LintContext) -> Iterator[Finding]:
    """A video of the frames and pixels that are asked for has more tokens than the sequence."""
    for document in run.of("llamafactory"):
        if not document.is_view:
            yield from _of(document)


def _of(document: Document) -> Iterator[Finding]:
    length, model = document.get("cutoff_len"), document.value("model_name_or_path")
    frames_at, pixels_at = document.get("video_maxlen"), document.get("video_max_pixels")
    side = next((side for name, side in _SIDES if name.search(str(model))), None)
    said = [each for each in (pixels_at, frames_at) if each is not None]
    if side is None or length is None or not said or not _whole(length.value):
        return
    frames = frames_at.value if frames_at is not None else _FRAMES
    pixels = pixels_at.value if pixels_at is not None else _PIXELS
    if not _whole(frames) or not _whole(pixels):
        return
    each, pairs = pixels // side**2, -(-frames // _TOGETHER)
    if each * pairs < length.value:
        return
    yield Finding(
        f"a video takes up to {each * pairs:,} tokens, and a sequence {length.value:,}",
        (length.label("cuts the sequence"), *(at.label("", primary=False) for at in said)),
        (
            (
                f"{pixels:,} pixels / {side**2} a token = {each}; {frames} frames, "
                f"{_TOGETHER} a token = {pairs}: {each} x {pairs} = {each * pairs:,}"
            ),
            "video tokens that are cut off no longer match the video's features: the forward fails",
        ),
        "lower video_maxlen or video_max_pixels, or raise cutoff_len",
        sum=(
            Term("one video", each * pairs, "tokens"),
            Term("the sequence", length.value, "tokens"),
        ),
    )


def _whole(value: object) -> bool:
    return is_whole(value) and value > 0
