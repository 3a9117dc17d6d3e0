"""A video of the frames and pixels that are asked for has more tokens than the sequence."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.lints.batch.counts import is_whole
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_SIDES: Final = ((re.compile(r"(?i)qwen2(\.5)?-?vl"), 28), (re.compile(r"(?i)qwen3-?vl"), 32))
"""Pixels of a token's side: config.json `vision_config`, patch_size x spatial_merge_size."""
_FRAMES: Final = 128
_PIXELS: Final = 256 * 256
"""llamafactory 0.9.2 to 0.9.5 hparams/model_args.py `video_maxlen`, `video_max_pixels`."""
_TOGETHER: Final = 2
"""Frames of one token: config.json `vision_config.temporal_patch_size`."""


def _check(run: Run) -> Iterator[Finding]:
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


RULE = Rule(
    name="video-longer-than-sequence",
    severity="warning",
    consequence="step",
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
    check=_check,
)
