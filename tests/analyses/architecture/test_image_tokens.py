"""Pictures become as many tokens as each family's own processor makes of them."""

import math
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tunec.compiler.analyses.architecture import (
    UnfitImage,
    derive,
    image_tokens,
    latent_tokens,
    vision_tokens,
)
from tunec.schemas.models.architecture import ImageTokens
from tunec.schemas.models.catalogue import card

SIDES = st.integers(8, 5000)


def images_of(name: str, **config) -> ImageTokens:
    found = card(name)
    images = derive({**found.config, **config}, found.processor).images
    assert images is not None
    return images


@pytest.mark.parametrize(
    ("name", "tokens", "tower"),
    [
        ("llava-1.5-7b", 576, (577,)),
        # OpenBMB and THUDM state none for a plain size: (1120 / 14 / 2) ** 2 and two frame tokens
        ("glm-4v-9b", 1602, (6401,)),
        ("gemma-3-4b", 256, (4096,)),
        ("visualglm-6b", 32, (257,)),
        # transformers 5.23 `models/got_ocr2/processing_got_ocr2.py`, `num_image_tokens`
        ("got-ocr-2.0", 256, (4096,)),
        ("llama-3.2-11b-vision-instruct", 1, (4 * 1608,)),
        ("llama-3.2-11b-vision", 1, (4 * 1032,)),
    ],
)
def test_a_fixed_size_gives_the_same_for_every_picture(name, tokens, tower):
    images = images_of(name)
    for size in ((100, 100), (1920, 1080), (50, 3000)):
        assert image_tokens(images, *size) == tokens
        assert vision_tokens(images, *size) == tower


@pytest.mark.parametrize(("name", "patch"), [("qwen2.5-vl-7b", 14), ("qwen3.5-9b", 16)])
@given(width=SIDES, height=SIDES)
def test_qwen_resizes_as_its_processor(name, patch, width, height):
    pil = pytest.importorskip("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")
    images = images_of(name)
    bounds = {"min_pixels": images.min_pixels, "max_pixels": images.max_pixels}
    try:
        high, wide = pil.smart_resize(height, width, factor=2 * patch, **bounds)
    except ValueError:
        with pytest.raises(UnfitImage):
            image_tokens(images, width, height)
        return
    assert vision_tokens(images, width, height) == (high // patch * (wide // patch),)
    assert image_tokens(images, width, height) == high // patch // 2 * (wide // patch // 2)


def test_qwens_bounds_come_from_its_preprocessor_config():
    config = card("qwen2.5-vl-7b").config
    assert derive(config, {"do_resize": True}).images.max_pixels == 28 * 28 * 1280
    assert derive(config, {"max_pixels": 1_003_520}).images.max_pixels == 1_003_520
    newer = {"size": {"shortest_edge": 65536, "longest_edge": 16777216}}
    assert derive(config, newer).images.min_pixels == 65536


@pytest.mark.parametrize(
    ("name", "tokens"),
    [("qwen2-vl-7b", 1369), ("qwen2.5-vl-7b", 1369), ("qwen3-vl-8b", 1024), ("qwen3.5-9b", 1024)],
)
def test_qwens_bounds_are_the_makers_where_no_file_is_at_hand(name, tokens):
    assert image_tokens(images_of(name), 1024, 1024) == tokens
    assert image_tokens(images_of(name), 9000, 9000) >= 16_000


@given(width=SIDES, height=SIDES)
def test_llava_next_counts_as_its_processor(width, height):
    module = pytest.importorskip("transformers.models.llava_next.processing_llava_next")
    images = images_of("llava-v1.6-mistral-7b")
    pinpoints = [list(grid) for grid in images.grids]
    real = module.LlavaNextProcessor
    stand_in = SimpleNamespace(
        image_processor=SimpleNamespace(image_grid_pinpoints=pinpoints),
        patch_size=14,
        num_additional_image_tokens=1,
    )
    stand_in._get_unpadded_features = partial(real._get_unpadded_features, stand_in)
    counted = real._get_number_of_features(stand_in, height, width, 336, 336) - 1
    assert image_tokens(images, width, height) == counted
    high, wide = module.select_best_resolution((height, width), pinpoints)
    tiles = high * wide // 336**2
    assert vision_tokens(images, width, height) == (577,) * (tiles + 1)


@pytest.mark.parametrize(
    ("name", "side", "tokens", "tower"),
    [("internvl2-8b", 448, 256, 1025), ("aya-vision-8b", 364, 169, 676)],
)
@given(width=SIDES, height=SIDES)
def test_internvl_and_aya_tile_as_their_processor(name, side, tokens, tower, width, height):
    pil = pytest.importorskip("transformers.models.got_ocr2.image_processing_pil_got_ocr2")
    columns, rows = pil.get_optimal_tiled_canvas((height, width), (side, side), 1, 12)
    tiles = columns * rows + (columns * rows > 1)
    images = images_of(name)
    assert image_tokens(images, width, height) == tokens * tiles
    assert vision_tokens(images, width, height) == (tower,) * tiles


def test_internvl_without_dynamic_size_has_one_tile():
    images = images_of("internvl2-8b", dynamic_image_size=False)
    assert image_tokens(images, 4000, 1000) == 256


def test_minicpm_makes_640_tokens_of_1344_by_1344_pixels():
    # OpenBMB/MiniCPM-V, README.md, of MiniCPM-V 2.6: "only 640 tokens when processing a 1.8M
    # pixel image"
    images = images_of("minicpm-v-2_6")
    assert image_tokens(images, 1344, 1344) == 640
    assert vision_tokens(images, 1344, 1344) == (1024,) * 10


@pytest.mark.parametrize(
    ("size", "slices"), [((448, 448), 0), ((449, 448), 2), ((896, 448), 2), ((4000, 300), 7)]
)
def test_minicpm_slices_what_is_larger_than_one_view(size, slices):
    images = images_of("minicpm-llama3-v-2_5")
    assert image_tokens(images, *size) == 96 * (1 + slices)


@given(width=SIDES, height=SIDES)
def test_minicpm_keeps_each_slice_near_one_view(width, height):
    assume(max(width, height) < 20 * min(width, height))
    images = images_of("minicpm-v-2_6")
    overview, *slices = vision_tokens(images, width, height)
    assert len(slices) <= 9
    assert len(set(slices)) <= 1
    assert len(slices) != 1
    assert image_tokens(images, width, height) == 64 * (1 + len(slices))
    if width * height <= 448**2:
        assert not slices
    for patches in (overview, *slices):
        # rounding to whole patches moves each side by at most half a patch
        assert patches <= (32 + 0.5 * math.sqrt(20)) ** 2 + 32


@pytest.mark.parametrize("name", ["llava-1.5-7b", "qwen2.5-vl-7b", "minicpm-v-2_6"])
def test_a_picture_without_area_is_refused(name):
    with pytest.raises(UnfitImage, match="0 x 5 pixels"):
        image_tokens(images_of(name), 0, 5)


@pytest.mark.parametrize(
    ("name", "tokens"),
    [("flux.1-dev", 4096), ("sd3-medium", 4096), ("sdxl-base-1.0", 16384)],
)
def test_latents_of_a_picture_of_1024_pixels(name, tokens):
    assert latent_tokens(derive(card(name).config), 1024, 1024) == tokens
    assert latent_tokens(derive(card(name).config), 512, 1024) == tokens // 2
