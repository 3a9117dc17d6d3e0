"""Pictures of models that were read off their classes, against the image processors themselves."""

import ast
import importlib
import math
from collections import defaultdict
from functools import cache, lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunec.compiler.analyses.architecture import (
    UnfitImage,
    UnusableConfig,
    image_tokens,
    vision_tokens,
    with_images,
)
from tunec.compiler.analyses.architecture.image_rules import IMAGE_RULES
from tunec.schemas.models.architecture import Architecture, ImageTokens, Stack

SIDES = st.integers(8, 5000)
WHOLE_TOKENS = st.integers(28, 5000)
TOWER = Stack("vision", 1, 64, 1, 1, 64, 64, False, "layer")
CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3_5": {"vision_config": {"patch_size": 16, "spatial_merge_size": 2}},
    "mistral3": {"spatial_merge_size": 2, "vision_config": {"patch_size": 14}},
    "gemma4": {},
    "llama4": {"vision_config": {"image_size": 336, "patch_size": 14}},
    "kimi_k25": {},
    "smolvlm": {"scale_factor": 3, "vision_config": {"image_size": 384, "patch_size": 14}},
    "llava_onevision": {"vision_config": {"image_size": 384, "patch_size": 14}},
    "lfm2_vl": {},
    "llava": {"vision_config": {"model_type": "pixtral", "patch_size": 16}},
    "paddleocr_vl": {"vision_config": {"patch_size": 14, "spatial_merge_size": 2}},
    "minicpmv4_6": {},
    "idefics2": {"vision_config": {"patch_size": 14}},
    "gemma4_unified": {},
}


def seen(family: str, *stacks: Stack) -> Architecture:
    return Architecture(family, "vision-language", (), stacks, 64, 64, 0, tied=False)


def images_of(family: str, **processor: Any) -> ImageTokens:
    found = with_images(seen(family, TOWER), CONFIGS[family], processor).images
    assert found is not None
    return found


def module(name: str) -> Any:
    family = name.partition(".")[0]
    path = f"transformers.models.{family}.{name.partition('.')[2]}"
    pytest.importorskip("transformers")
    try:
        return importlib.import_module(path)
    except ImportError as absent:
        pytest.skip(f"{path}: {absent}")


@given(width=SIDES, height=SIDES)
def test_pixtral_resizes_as_its_processor(width, height):
    np = pytest.importorskip("numpy")
    pil = module("pixtral.image_processing_pil_pixtral")
    images = images_of("mistral3", size={"longest_edge": 1540})
    picture = np.broadcast_to(np.uint8(0), (height, width, 3))
    high, wide = pil.get_resize_output_image_size(picture, 1540, 28)
    if not high * wide:
        with pytest.raises(UnfitImage):
            image_tokens(images, width, height)
        return
    assert image_tokens(images, width, height) == high // 28 * (wide // 28)
    assert vision_tokens(images, width, height) == (high // 14 * (wide // 14),)


@pytest.mark.parametrize("budget", [70, 280, 1120])
@given(width=SIDES, height=SIDES)
def test_gemma_4_resizes_as_its_processor(budget, width, height):
    pil = module("gemma4.image_processing_pil_gemma4")
    images = images_of("gemma4", max_soft_tokens=budget)
    try:
        high, wide = pil.get_aspect_ratio_preserving_size(height, width, 16, budget * 9, 3)
    except ValueError:
        with pytest.raises(UnfitImage):
            image_tokens(images, width, height)
        return
    assert image_tokens(images, width, height) == high // 48 * (wide // 48)
    assert vision_tokens(images, width, height) == (budget * 9,)


@cache
def functions(family: str) -> dict[str, Any]:
    """The functions of an image processor's module whose import asks for torchvision."""
    torch = pytest.importorskip("torch")
    package = pytest.importorskip("transformers").__path__[0]
    source = Path(package, "models", family, f"image_processing_{family}.py").read_text("utf-8")
    kept = [each for each in ast.parse(source).body if isinstance(each, ast.FunctionDef)]
    known = {"math": math, "torch": torch, "lru_cache": lru_cache, "defaultdict": defaultdict}
    utils = importlib.import_module("transformers.image_utils")
    found: dict[str, Any] = {**known, **vars(utils)}
    exec(compile(ast.Module(kept, []), family, "exec"), found)  # noqa: S102  transformers' own
    return found


@given(width=SIDES, height=SIDES)
def test_llama_4_tiles_as_its_processor(width, height):
    real = functions("llama4")
    grids = real["find_supported_resolutions"](16, real["SizeDict"](height=336, width=336))
    high, wide = real["get_best_fit"]((height, width), real["torch"].tensor(grids)).tolist()
    tiles = high // 336 * (wide // 336)
    images = images_of("llama4")
    assert image_tokens(images, width, height) == 144 * (tiles + (tiles > 1))
    assert vision_tokens(images, width, height) == (577,) * (tiles + (tiles > 1))


@given(width=SIDES, height=SIDES)
def test_kimi_resizes_as_its_processor(width, height):
    resize = functions("kimi_k25")["navit_resize"]
    _, (high, wide) = resize(height, width, 14, 2, 16384, 512)
    images = images_of("kimi_k25")
    assert image_tokens(images, width, height) == high // 28 * (wide // 28)
    assert vision_tokens(images, width, height) == (high // 14 * (wide // 14),)


@given(width=SIDES, height=SIDES)
def test_smolvlm_cuts_as_its_processor(width, height):
    pil = module("smolvlm.image_processing_pil_smolvlm")
    np = pytest.importorskip("numpy")
    picture = np.broadcast_to(np.uint8(0), (3, height, width))
    high, wide = pil.get_resize_output_image_size(picture, 1536)
    resized: list[Any] = []
    stand_in = SimpleNamespace(resize=lambda _, size, **__: resized.append(size))
    picture = np.broadcast_to(np.uint8(0), (3, high, wide))
    pil.SmolVLMImageProcessorPil.resize_for_vision_encoder(stand_in, picture, 384)
    tiles = resized[0].height // 384 * (resized[0].width // 384)
    images = images_of("smolvlm", size={"longest_edge": 1536})
    assert images == images_of("smolvlm"), "four tiles a side, where nothing is said"
    assert image_tokens(images, width, height) == 81 * (tiles + (tiles > 1))
    assert vision_tokens(images, width, height) == (729,) * (tiles + (tiles > 1))


@given(width=SIDES, height=SIDES)
def test_llava_onevision_counts_as_its_processor(width, height):
    processor = module("llava_onevision.processing_llava_onevision").LlavaOnevisionProcessor
    pil = module("llava_onevision.image_processing_pil_llava_onevision")
    pinpoints = pil.LlavaOnevisionImageProcessorPil.image_grid_pinpoints
    stand_in = SimpleNamespace(
        image_processor=SimpleNamespace(image_grid_pinpoints=pinpoints),
        num_image_tokens=729,
        vision_aspect_ratio="anyres_max_9",
    )
    stand_in._get_unpadded_features = processor._get_unpadded_features.__get__(stand_in)
    real = processor._get_number_of_features(stand_in, height, width, 384, 384)
    assert image_tokens(images_of("llava_onevision"), width, height) == real


def method(family: str, name: str) -> Any:
    """A method of an image processor's class, as a function of its own."""
    real = functions(family)
    package = pytest.importorskip("transformers").__path__[0]
    source = Path(package, "models", family, f"image_processing_{family}.py").read_text("utf-8")
    inside = (each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.FunctionDef))
    found = next(each for each in inside if each.name == name)
    exec(compile(ast.Module([found], []), family, "exec"), real)  # noqa: S102  transformers' own
    return real[name]


@given(width=SIDES, height=SIDES)
def test_lfm2_vl_cuts_as_its_processor(width, height):
    sizes = {"downsample_factor": 2, "max_image_tokens": 256, "encoder_patch_size": 16}
    wide, high = method("lfm2_vl", "smart_resize")(None, height, width, 2, 64, 256, 16)
    large = method("lfm2_vl", "_is_image_too_large")(
        None, height=height, width=width, max_pixels_tolerance=2.0, **sizes
    )
    ratios = method("lfm2_vl", "_target_ratios")(None, 2, 10)
    closest = functions("lfm2_vl")["find_closest_aspect_ratio"]
    columns, rows = closest(width / height, ratios, width, height, 512)
    tiles = columns * rows if large else 0
    images = images_of("lfm2_vl")
    assert image_tokens(images, width, height) == 256 * tiles + high // 32 * (wide // 32)
    assert vision_tokens(images, width, height) == (1024,) * (tiles + 1)


@given(width=WHOLE_TOKENS, height=WHOLE_TOKENS)
def test_paddleocr_resizes_as_its_processor(width, height):
    resize = functions("paddleocr_vl")["smart_resize"]
    images = images_of("paddleocr_vl")
    try:
        high, wide = resize(height, width, 28, 147456, 2359296)
    except ValueError:
        with pytest.raises(UnfitImage):
            image_tokens(images, width, height)
        return
    assert image_tokens(images, width, height) == high // 28 * (wide // 28)
    assert vision_tokens(images, width, height) == (high // 14 * (wide // 14),)


@given(width=SIDES, height=SIDES)
def test_minicpm_v_cuts_as_its_processor(width, height):
    best = partial(method("minicpmv4_6", "find_best_resize"), None)
    stand_in = SimpleNamespace(find_best_resize=best)
    grid = method("minicpmv4_6", "get_sliced_grid")(None, (height, width), 9, 448)
    high, wide = best((height, width), 448, 14, "16x", grid is None)
    patches = [high // 14 * (wide // 14)]
    if grid is not None:
        refine = method("minicpmv4_6", "get_refine_size")
        high, wide = refine(stand_in, (height, width), grid, 448, 14, "16x", allow_upscale=True)
        patches += [high // grid[0] // 14 * (wide // grid[1] // 14)] * (grid[0] * grid[1])
    images = images_of("minicpmv4_6")
    assert vision_tokens(images, width, height) == tuple(patches)
    assert image_tokens(images, width, height) == sum(patches) // 16


@pytest.mark.parametrize("splits", [False, True])
@given(width=SIDES, height=SIDES)
def test_idefics2_cuts_as_its_processor(splits, width, height):
    resize, size = functions("idefics2")["get_resize_output_image_size"], SimpleNamespace()
    size.shortest_edge, size.longest_edge = 378, 980
    whole = pytest.importorskip("torch").empty(1, 3, height, width, device="meta")
    pictures = method("idefics2", "split_images")(None, whole)[0] if splits else [whole]
    sizes = [resize(each, size) for each in pictures]
    patches = max(high for high, _ in sizes) // 14 * (max(wide for _, wide in sizes) // 14)
    images = images_of("idefics2", do_image_splitting=splits)
    assert vision_tokens(images, width, height) == (patches,) * len(pictures)
    assert image_tokens(images, width, height) == 64 * len(pictures)


PICTURES = [(300, 500), (1920, 1080), (640, 640), (90, 700)]


@pytest.mark.parametrize(("width", "height"), PICTURES)
def test_whole_processors_give_as_many_patches(width, height):
    np, image = pytest.importorskip("numpy"), pytest.importorskip("PIL.Image")
    picture = image.fromarray(np.zeros((height, width, 3), "uint8"))
    pixtral = module("pixtral.image_processing_pil_pixtral").PixtralImageProcessorPil
    made = pixtral(size={"longest_edge": 1540}, patch_size=28)(picture, return_tensors="np")
    images = images_of("mistral3", size={"longest_edge": 1540})
    high, wide = made["image_sizes"][0]
    assert vision_tokens(images, width, height) == (high // 14 * (wide // 14),)
    gemma = module("gemma4.image_processing_pil_gemma4").Gemma4ImageProcessorPil()
    made = gemma(picture, return_tensors="np")
    images = images_of("gemma4")
    assert image_tokens(images, width, height) == int(made["num_soft_tokens_per_image"][0])
    assert vision_tokens(images, width, height) == (made["pixel_values"].shape[1],)


# Gemma 4 12B has no tower: its pictures are projected alone
@pytest.mark.parametrize("family", sorted(CONFIGS.keys() - {"gemma4_unified"}))
def test_a_model_whose_tower_is_not_known_takes_no_pictures(family):
    assert family in IMAGE_RULES
    assert with_images(seen(family), CONFIGS[family], {}).images is None


def test_a_family_without_a_row_takes_no_pictures():
    assert with_images(seen("fuyu", TOWER), {}, {}).images is None


def test_a_config_that_says_no_size_is_refused():
    with pytest.raises(UnusableConfig, match=r"vision_config\.patch_size"):
        with_images(seen("mistral3", TOWER), {"vision_config": {"patch_size": "small"}}, {})
