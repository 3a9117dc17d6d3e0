"""How many tokens an image becomes, by each family's own rule.

The count includes the positions of the language model's sequence that states of the image fill; the
marker tokens that a chat template writes around them (`<|vision_start|>`, `<image>`) are text.
Sizes are in pixels.
"""

import math
from collections.abc import Callable, Mapping
from typing import Final

from tunec.compiler.analyses.architecture.idefics2 import idefics2_pictures, idefics2_tower
from tunec.compiler.analyses.architecture.slices import grids, sliced_tokens, sliced_tower
from tunec.compiler.analyses.architecture.smolvlm import smolvlm_tiles
from tunec.schemas.models.architecture import Architecture, ImageTokens

Size = tuple[int, int]
"""Width and height."""


class UnfitImage(ValueError):
    """An image that a family's processor refuses."""


def image_tokens(images: ImageTokens, width: int, height: int) -> int:
    """Count the tokens that one image of this size gives to the language model.

    Raises `UnfitImage` for a size that the family's processor refuses.
    """
    _check(width, height)
    return _RULES[images.rule][0](images, width, height)


def vision_tokens(images: ImageTokens, width: int, height: int) -> tuple[int, ...]:
    """Count the patch and class tokens of each sequence that the tower runs for one image.

    One number for each tile or slice that attends only to itself. Raises as `image_tokens`.
    """
    _check(width, height)
    return _RULES[images.rule][1](images, width, height)


def latent_tokens(architecture: Architecture, width: int, height: int) -> int:
    """Count the tokens of a diffusion transformer, or the latent elements of a UNet's top level."""
    side = architecture.latent_scale * architecture.latent_patch
    return (width // side) * (height // side)


def latent_frames(architecture: Architecture, frames: int) -> int:
    """Count the frames of a clip's latent: the first, and one for each `latent_time` after it.

    A picture has one (diffusers 0.42.1 `pipelines/wan/pipeline_wan.py`, `prepare_latents`).
    """
    return 1 + max(frames - 1, 0) // max(architecture.latent_time, 1)


def _check(width: int, height: int) -> None:
    if width < 1 or height < 1:
        raise UnfitImage(f"a picture of {width} x {height} pixels has no area")


def _fixed(images: ImageTokens, _: int, __: int) -> int:
    return images.tokens + images.framing_tokens


def _one_square(images: ImageTokens, _: int, __: int) -> tuple[int, ...]:
    return (_square(images),)


def _square(images: ImageTokens) -> int:
    return (images.image_size // images.patch) ** 2 + images.lead_tokens


# Qwen2-VL: transformers 5.23.0, models/qwen2_vl/image_processing_qwen2_vl.py, smart_resize.

_WIDEST: Final = 200
"""The largest ratio of the sides."""


def _qwen_patches(images: ImageTokens, width: int, height: int) -> int:
    if max(width, height) > _WIDEST * min(width, height):
        raise UnfitImage(f"{width} x {height} pixels: one side is over {_WIDEST} times the other")
    high, wide = _bounded(images, width, height)
    return (high // images.patch) * (wide // images.patch)


def _bounded(images: ImageTokens, width: int, height: int, least: int = 0) -> Size:
    """Height and width in whole tokens, at least `least` pixels a side, within the bounds."""
    factor = images.patch * images.merge
    high, wide = (max(least, round(side / factor) * factor) for side in (height, width))
    if images.max_pixels and high * wide > images.max_pixels:
        shrink = math.sqrt(height * width / images.max_pixels)
        high, wide = (max(factor, _floor(side / shrink, factor)) for side in (height, width))
    elif high * wide < images.min_pixels:
        stretch = math.sqrt(images.min_pixels / (height * width))
        high, wide = (math.ceil(side * stretch / factor) * factor for side in (height, width))
    return high, wide


def _floor(side: float, factor: int) -> int:
    return math.floor(side / factor) * factor


def _qwen_tokens(images: ImageTokens, width: int, height: int) -> int:
    return _qwen_patches(images, width, height) // images.merge**2


def _qwen_tower(images: ImageTokens, width: int, height: int) -> tuple[int, ...]:
    return (_qwen_patches(images, width, height),)


# LLaVA-NeXT: transformers 5.23.0, models/llava_next/processing_llava_next.py,
# LlavaNextProcessor._get_number_of_features; image_processing_utils.py, select_best_resolution.


def _best_canvas(images: ImageTokens, width: int, height: int) -> Size:
    """Choose the canvas that keeps most of the image, then the one that wastes least."""

    def merit(canvas: tuple[int, int]) -> tuple[int, int]:
        high, wide = canvas
        scale = min(wide / width, high / height)
        kept = min(int(width * scale) * int(height * scale), width * height)
        return kept, kept - wide * high

    high, wide = max(images.grids, key=merit)
    return wide, high


def _next_tokens(images: ImageTokens, width: int, height: int) -> int:
    rows, columns = _next_grid(images, width, height)
    return rows * columns + rows + images.tokens


def _next_grid(images: ImageTokens, width: int, height: int) -> Size:
    """Rows and columns of states on the canvas, without those of the padding."""
    wide, high = _best_canvas(images, width, height)
    side = images.image_size // images.patch
    rows, columns = side * (high // images.image_size), side * (wide // images.image_size)
    if width / height > columns / rows:
        rows -= (rows - int(round(height * (columns / width), 7))) // 2 * 2
    else:
        columns -= (columns - int(round(width * (rows / height), 7))) // 2 * 2
    return rows, columns


def _next_tower(images: ImageTokens, width: int, height: int) -> tuple[int, ...]:
    wide, high = _best_canvas(images, width, height)
    tiles = (wide // images.image_size) * (high // images.image_size)
    return (_square(images),) * (tiles + 1)


# InternVL: OpenGVLab/InternVL (2410d1dbf208), internvl_chat/internvl/train/dataset.py,
# dynamic_preprocess; the same in transformers 5.23.0, models/got_ocr2/image_processing_got_ocr2.py.


def _tiles(images: ImageTokens, width: int, height: int) -> int:
    """Choose the grid of tiles nearest to the image's shape; two or more get an overview."""
    area, tile = width * height, images.image_size**2
    nearest, best = math.inf, 1
    for columns, rows in grids(images.min_slices, images.max_slices):
        difference = abs(width / height - columns / rows)
        roomy = difference == nearest and area > 0.5 * tile * columns * rows
        if difference < nearest or roomy:
            nearest, best = difference, columns * rows
    return best + 1 if best > 1 else 1


def _tiled_tokens(images: ImageTokens, width: int, height: int) -> int:
    return _tiles(images, width, height) * images.tokens


def _tiled_tower(images: ImageTokens, width: int, height: int) -> tuple[int, ...]:
    return (_square(images),) * _tiles(images, width, height)


# Llama 3.2 Vision: transformers 5.23.0, models/mllama/modeling_mllama.py, MllamaVisionModel: all
# tiles, the empty ones too, are one sequence, each padded to a multiple of eight.


def _mllama_tower(images: ImageTokens, _: int, __: int) -> tuple[int, ...]:
    padded = -(-_square(images) // 8) * 8
    return (padded * images.max_slices,)


# Pixtral's tower, as Mistral Small 3.1 has it: transformers 5.23.0,
# models/pixtral/image_processing_pixtral.py, get_resize_output_image_size.


def _pixtral_grid(images: ImageTokens, width: int, height: int) -> Size:
    ratio = max(height / images.max_side, width / images.max_side)
    if ratio > 1:
        width, height = math.floor(width / ratio), math.floor(height / ratio)
    if not width or not height:
        raise UnfitImage("one side is no pixel wide when the other is as long as may be")
    side = images.patch * images.merge
    return -(-width // side), -(-height // side)


def _pixtral_tokens(images: ImageTokens, width: int, height: int) -> int:
    columns, rows = _pixtral_grid(images, width, height)
    return columns * rows


# Gemma 4: transformers 5.23.0, models/gemma4/image_processing_gemma4.py,
# get_aspect_ratio_preserving_size; each picture is padded to the most patches (`_preprocess`).


def _gemma4_tokens(images: ImageTokens, width: int, height: int) -> int:
    side, most = images.patch * images.merge, images.tokens
    scale = math.sqrt(most * side**2 / (width * height))
    columns, rows = (math.floor(scale * each / side) for each in (width, height))
    if not columns and not rows:
        raise UnfitImage(f"{width} x {height} pixels become no token")
    if not rows:
        rows, columns = 1, min(width // height, most)
    elif not columns:
        columns, rows = 1, min(height // width, most)
    return columns * rows


def _gemma4_tower(images: ImageTokens, _: int, __: int) -> tuple[int, ...]:
    return (images.tokens * images.merge**2,)


# Llama 4: transformers 5.23.0, models/llama4/image_processing_llama4.py, get_best_fit: the smallest
# canvas that takes the picture whole, or the one that keeps most of it; an overview joins two or
# more tiles.


def _llama4_tiles(images: ImageTokens, width: int, height: int) -> int:
    def scale(grid: Size) -> float:
        return images.image_size * min(grid[0] / width, grid[1] / height)

    canvases = list(grids(1, images.max_slices))
    scales = [scale(each) for each in canvases]
    whole = [each for each in scales if each >= 1]
    chosen = min(whole) if whole else max(scales)
    fitting = (grid for grid, each in zip(canvases, scales, strict=True) if each == chosen)
    tiles = min(columns * rows for columns, rows in fitting)
    return tiles + 1 if tiles > 1 else 1


def _llama4_tokens(images: ImageTokens, width: int, height: int) -> int:
    return _llama4_tiles(images, width, height) * images.tokens


def _llama4_tower(images: ImageTokens, width: int, height: int) -> tuple[int, ...]:
    return (_square(images),) * _llama4_tiles(images, width, height)


# Kimi K2.5: transformers 5.23.0, models/kimi_k25/image_processing_kimi_k25.py, navit_resize.


def _kimi_tokens(images: ImageTokens, width: int, height: int) -> int:
    patch, factor = images.patch, images.patch * images.merge
    patches = max(1, height // patch) * max(1, width // patch)
    total = math.sqrt(images.max_pixels // patch**2 / patches)
    scale = min(1.0, total, images.max_side / height, images.max_side / width)
    sides = (min(max(1, int(side * scale)), images.max_side) for side in (width, height))
    columns, rows = (-(-side // factor) for side in sides)
    return columns * rows


def _smol_tokens(images: ImageTokens, width: int, height: int) -> int:
    return smolvlm_tiles(images, width, height) * images.tokens


def _smol_tower(images: ImageTokens, width: int, height: int) -> tuple[int, ...]:
    return (_square(images),) * smolvlm_tiles(images, width, height)


def _idefics2_tokens(images: ImageTokens, _: int, __: int) -> int:
    return idefics2_pictures(images) * images.tokens


# LLaVA-OneVision: transformers 5.23.0, models/llava_onevision/processing_llava_onevision.py,
# LlavaOnevisionProcessor._get_unpadded_features: as LLaVA-NeXT, then shrunk to so many tiles.

_SHRUNK: Final = 1.1
"""The ratio of a side to its maximum above which the grid of states is reduced."""


def _onevision_tokens(images: ImageTokens, width: int, height: int) -> int:
    rows, columns = _next_grid(images, width, height)
    ratio = math.sqrt(rows * columns / (images.max_slices * images.tokens))
    if ratio > _SHRUNK:
        rows, columns = int(rows // ratio), int(columns // ratio)
    return rows * columns + rows + images.tokens


# LFM2-VL: transformers 5.23.0, models/lfm2_vl/image_processing_lfm2_vl.py, `resize_and_split`,
# `smart_resize`: one picture in its own shape, and tiles before it where it is large.

_TOLERATED: Final = 2.0
"""`max_pixels_tolerance`: up to this factor above the maximum of pixels, an image is not split."""


def _lfm2_tiles(images: ImageTokens, width: int, height: int) -> int:
    """The number of tiles besides the image itself."""
    factor = images.patch * images.merge
    high, wide = (max(images.patch, round(n / factor) * factor) for n in (height, width))
    large = high * wide > images.max_pixels * _TOLERATED
    return _tiles(images, width, height) - 1 if large and images.max_slices > 1 else 0


def _lfm2_tokens(images: ImageTokens, width: int, height: int) -> int:
    factor = images.patch * images.merge
    high, wide = _bounded(images, width, height, factor)
    whole = (high // factor) * (wide // factor)
    return whole + _lfm2_tiles(images, width, height) * images.tokens


def _lfm2_tower(images: ImageTokens, width: int, height: int) -> tuple[int, ...]:
    each = max(images.tokens * images.merge**2, images.max_pixels // images.patch**2)
    return (each,) * (_lfm2_tiles(images, width, height) + 1)


def _merged_tower(count: "_Count") -> "_Towers":
    """The tower's patches, if a projector merges `merge` of them a side."""

    def tower(images: ImageTokens, width: int, height: int) -> tuple[int, ...]:
        return (count(images, width, height) * images.merge**2,)

    return tower


_Count = Callable[[ImageTokens, int, int], int]
_Towers = Callable[[ImageTokens, int, int], tuple[int, ...]]

_RULES: Final[Mapping[str, tuple[_Count, _Towers]]] = {
    "fixed": (_fixed, _one_square),
    "qwen2-vl": (_qwen_tokens, _qwen_tower),
    "llava-next": (_next_tokens, _next_tower),
    "internvl": (_tiled_tokens, _tiled_tower),
    "minicpm-v": (sliced_tokens, sliced_tower),
    "mllama": (_fixed, _mllama_tower),
    "pixtral": (_pixtral_tokens, _merged_tower(_pixtral_tokens)),
    "gemma4": (_gemma4_tokens, _gemma4_tower),
    "llama4": (_llama4_tokens, _llama4_tower),
    "kimi": (_kimi_tokens, _merged_tower(_kimi_tokens)),
    "smolvlm": (_smol_tokens, _smol_tower),
    "idefics2": (_idefics2_tokens, idefics2_tower),
    "llava-onevision": (_onevision_tokens, _next_tower),
    "lfm2-vl": (_lfm2_tokens, _lfm2_tower),
}
