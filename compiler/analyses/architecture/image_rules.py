"""How images become tokens in models whose architecture was read off their class: one row each.

A row reads the family's rule (`image_tokens`) from the model's config and its
preprocessor_config.json, with the defaults of the image processor's class if these lack a key. A
family without a row takes no images in a plan.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tunec.compiler.analyses.architecture.facts import Facts, Findings, UnusableConfig
from tunec.compiler.analyses.architecture.layer_classes import layer_classes
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Architecture, ImageTokens


def with_images(
    model: Architecture, config: Mapping[str, Any], processor: Mapping[str, Any]
) -> Architecture:
    """Add the image rule of its family to an architecture that was read off its class.

    No rule is added if the family has no row, or the layers of its tower are not known. Layer
    classes are added if its own list names others. Raises UnusableConfig with every key that is
    missing or has the wrong type.
    """
    model = replace(model, layer_classes=layer_classes(config))
    rule = IMAGE_RULES.get(model.family)
    if rule is None or not _sees(model):
        return model
    findings = Findings()
    images = rule(Facts(config, model.family, findings=findings, processing=processor))
    if findings.faults:
        raise UnusableConfig(model.family, findings.faults)
    return replace(model, images=images)


def _sees(model: Architecture) -> bool:
    """Whether the layers of its tower are known, or it has none.

    Without a tower, patches are only projected, or convolutions make the tokens.
    """
    layers = any(stack.part == "vision" for stack in model.stacks)
    return layers or model.family in _TOWERLESS


_MERGE: Final = "spatial_merge_size"
_TOWERLESS: Final = frozenset({"gemma3n", "gemma4_unified"})
_AREA: Final = {"size": {"shortest_edge": 65_536, "longest_edge": 16_777_216}}
_PIXELS: Final = {"min_pixels": 3_136, "max_pixels": 12_845_056}
PUBLISHED_BOUNDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "qwen2_vl_vision": _PIXELS,
    "qwen2_5_vl_vision": _PIXELS,
    "qwen2_5_omni_vision_encoder": _PIXELS,
    "qwen3_vl_vision": _AREA,
    "qwen3_vl_moe_vision": _AREA,
    "qwen3_5_vision": _AREA,
    "qwen3_5_moe_vision": _AREA,
}
"""preprocessor_config.json of Qwen/Qwen2.5-VL-3B-Instruct and -7B-Instruct (the class of Qwen2-VL),
of Qwen/Qwen2.5-Omni-7B, of Qwen/Qwen3-VL-8B-Instruct, and of Qwen/Qwen3.5-2B-Base and
Qwen3.6-35B-A3B-FP8, in public copies.
"""


def qwen(facts: Facts, vision_family: str) -> ImageTokens:
    """Qwen-VL: any size between two bounds on pixels; `merge` patches a side become one token.

    The bounds are `min_pixels` and `max_pixels`, or `size` in newer files. If the model's own file
    is not available, they are those that Qwen publishes with every model of the family: the class's
    default is less than a tenth of that.
    """
    vision = facts.section("vision_config", vision_family)
    facts = replace(facts, processing=facts.processing or PUBLISHED_BOUNDS[vision_family])
    bounds = facts.processor("Qwen2VLImageProcessor")
    size = bounds.section("size", "Qwen2VLImageProcessor.size")
    low, high = size.count("shortest_edge"), size.count("longest_edge")
    return ImageTokens(
        rule="qwen2-vl",
        image_size=0,
        patch=vision.side("patch_size"),
        merge=vision.count("spatial_merge_size"),
        min_pixels=bounds.count_or("min_pixels", low),
        max_pixels=bounds.count_or("max_pixels", high),
    )


def paddleocr(facts: Facts) -> ImageTokens:
    """PaddleOCR-VL: as Qwen-VL, with its own bounds."""
    vision = facts.section("vision_config", "")
    size = facts.processor("PaddleOCRVLImageProcessor").section(
        "size", "PaddleOCRVLImageProcessor.size"
    )
    return ImageTokens(
        rule="qwen2-vl",
        image_size=0,
        patch=vision.side("patch_size"),
        merge=vision.count(_MERGE),
        min_pixels=size.count("shortest_edge"),
        max_pixels=size.count("longest_edge"),
    )


def minicpm_v(facts: Facts) -> ImageTokens:
    """MiniCPM-V 4.6: slices whose patches are merged in the tower, four a side or two."""
    given = facts.processor("MiniCPMV4_6ImageProcessor")
    finer = facts.text("downsample_mode") == "4x"
    return ImageTokens(
        rule="minicpm-v",
        image_size=given.count("scale_resolution"),
        patch=given.count("patch_size"),
        merge=2 if finer else 4,
        max_slices=given.count("max_slice_nums"),
    )


def idefics2(facts: Facts) -> ImageTokens:
    """Idefics2: an image, with its quarters if it is split, each resampled to a few tokens."""
    given = facts.processor("Idefics2ImageProcessor")
    size = given.section("size", "Idefics2ImageProcessor.size")
    resampled = facts.section("perceiver_config", "idefics2_perceiver")
    return ImageTokens(
        rule="idefics2",
        image_size=size.count("shortest_edge"),
        patch=facts.section("vision_config", "").side("patch_size"),
        tokens=resampled.count("resampler_n_latents"),
        max_slices=4 if given.flag("do_image_splitting") else 1,
        max_side=size.count("longest_edge"),
    )


def glm(facts: Facts, vision_family: str) -> ImageTokens:
    """GLM-V: as Qwen-VL, but the bounds count the pixels of an image once for each frame.

    transformers 5.23.0 `models/glm4v/image_processing_glm4v.py`, `smart_resize`: `num_frames` is
    `temporal_patch_size`.
    """
    vision = facts.section("vision_config", vision_family)
    frames = vision.count("temporal_patch_size")
    size = facts.processor("Glm4vImageProcessor").section("size", "Glm4vImageProcessor.size")
    return ImageTokens(
        rule="qwen2-vl",
        image_size=0,
        patch=vision.side("patch_size"),
        merge=vision.count("spatial_merge_size"),
        min_pixels=size.count("shortest_edge") // frames,
        max_pixels=size.count("longest_edge") // frames,
    )


def paligemma(facts: Facts) -> ImageTokens:
    """PaliGemma: one square, in which each patch is a token."""
    vision = facts.section("vision_config", "siglip_vision_model")
    side, patch = vision.side("image_size"), vision.side("patch_size")
    return ImageTokens(rule="fixed", image_size=side, patch=patch, tokens=(side // patch) ** 2)


def gemma3n(facts: Facts) -> ImageTokens:
    """Gemma 3n: one square, which its convolutional tower turns into a fixed number of tokens.

    transformers 5.23.0 `models/gemma3n/processing_gemma3n.py`, `image_seq_length`; the square of
    google/gemma-3n-E4B-it, preprocessor_config.json, in public copies.
    """
    tokens = facts.count("vision_soft_tokens_per_image")
    return ImageTokens(rule="fixed", image_size=768, patch=48, tokens=tokens)


def pixtral(facts: Facts) -> ImageTokens:
    """Pixtral's tower: any size up to a longest side; `merge` patches a side become one token."""
    size = facts.processor("PixtralImageProcessor").section("size", "PixtralImageProcessor.size")
    return ImageTokens(
        rule="pixtral",
        image_size=0,
        patch=facts.section("vision_config", "pixtral").side("patch_size"),
        merge=facts.count("spatial_merge_size"),
        max_side=size.count("longest_edge"),
    )


def pixtral_llava(facts: Facts) -> ImageTokens:
    """Pixtral 12B: as Mistral Small, but each patch is a token."""
    return pixtral(facts if facts.has("spatial_merge_size") else facts.with_value(_MERGE, 1))


def gemma4(facts: Facts, name: str = "Gemma4ImageProcessor") -> ImageTokens:
    """Gemma 4: any shape within a budget of tokens, to which each image is padded."""
    processor = facts.processor(name)
    return ImageTokens(
        rule="gemma4",
        image_size=0,
        patch=processor.count("patch_size"),
        merge=processor.count("pooling_kernel_size"),
        tokens=processor.count("max_soft_tokens"),
    )


def llama4(facts: Facts) -> ImageTokens:
    """Llama 4: tiles of the canvas that fits the image best, and an overview."""
    vision = facts.section("vision_config", "llama4_vision_model")
    side, patch = vision.side("image_size"), vision.side("patch_size")
    processor = facts.processor("Llama4ImageProcessor")
    if processor.flag("resize_to_max_canvas"):
        processor.refuse("resize_to_max_canvas", "false: how the largest canvas counts is unknown")
    return ImageTokens(
        rule="llama4",
        image_size=side,
        patch=patch,
        tokens=(side // patch // vision.parts("pixel_shuffle_ratio")) ** 2,
        max_slices=processor.count("max_patches"),
        lead_tokens=1,
    )


def kimi(facts: Facts) -> ImageTokens:
    """Kimi K2.5: images in their own size within a budget of patches, padded to whole tokens."""
    processor = facts.processor("Kimi_K25ImageProcessor")
    patch = processor.count("patch_size")
    size = processor.section("size", "Kimi_K25ImageProcessor.size")
    return ImageTokens(
        rule="kimi",
        image_size=0,
        patch=patch,
        merge=processor.count("merge_size"),
        max_pixels=processor.count("max_patches") * patch**2,
        max_side=size.count("max_height") * patch,
    )


def smolvlm(facts: Facts) -> ImageTokens:
    """SmolVLM: resized to a longest side, then split into the tower's tiles; four by default."""
    vision, size = facts.section("vision_config", ""), facts.processor("").section("size", "")
    side, patch = vision.side("image_size"), vision.side("patch_size")
    return ImageTokens(
        rule="smolvlm",
        image_size=side,
        patch=patch,
        tokens=(side // patch // facts.count("scale_factor")) ** 2,
        max_side=size.count_or("longest_edge", 4 * side),
    )


def llava_onevision(facts: Facts) -> ImageTokens:
    """LLaVA-OneVision: tiles of one of many canvases, whose states are reduced to `anyres_max_`."""
    vision = facts.section("vision_config", "")
    side, patch = vision.side("image_size"), vision.side("patch_size")
    most = facts.text("vision_aspect_ratio") or "anyres_max_9"
    grids = facts.get("image_grid_pinpoints") or [
        (side * rows, side * columns) for rows in range(1, 7) for columns in range(1, 7)
    ]
    return ImageTokens(
        rule="llava-onevision",
        image_size=side,
        patch=patch,
        tokens=(side // patch) ** 2,
        max_slices=int(most.removeprefix("anyres_max_")),
        grids=tuple((int(high), int(wide)) for high, wide in grids),
    )


def lfm2_vl(facts: Facts) -> ImageTokens:
    """LFM2-VL: an image within bounds on its tokens, preceded by tiles if it is large."""
    given = facts.processor("Lfm2VlImageProcessor")
    patch, merge = given.count("encoder_patch_size"), given.count("downsample_factor")
    tile, cuts = given.count("tile_size"), given.values.get("do_image_splitting", True)
    return ImageTokens(
        rule="lfm2-vl",
        image_size=tile,
        patch=patch,
        merge=merge,
        tokens=(tile // patch // merge) ** 2,
        min_pixels=given.count("min_image_tokens") * (patch * merge) ** 2,
        max_pixels=given.count("max_image_tokens") * (patch * merge) ** 2,
        min_slices=given.count("min_tiles") if cuts else 1,
        max_slices=given.count("max_tiles") if cuts else 1,
    )


def aya_vision(facts: Facts) -> ImageTokens:
    """Aya Vision: tiles and an overview, as InternVL's, whose patches its connector shuffles.

    transformers 5.23.0 `models/aya_vision/processing_aya_vision.py`, `crop_to_patches`.
    """
    vision = facts.section("vision_config", "siglip_vision_model")
    side, patch = vision.side("image_size"), vision.side("patch_size")
    merge, tiles = facts.count("downsample_factor"), facts.processor("GotOcr2ImageProcessor")
    return ImageTokens(
        rule="internvl",
        image_size=side,
        patch=patch,
        merge=merge,
        tokens=(side // patch // merge) ** 2,
        min_slices=tiles.count("min_patches"),
        max_slices=tiles.count("max_patches"),
    )


def got_ocr2(facts: Facts) -> ImageTokens:
    """GOT-OCR 2.0: one square of 1024 pixels, whose patches two convolutions halve a side.

    transformers 5.23.0 `models/got_ocr2/processing_got_ocr2.py`, `num_image_tokens`.
    """
    vision = facts.section("vision_config", "got_ocr2_vision")
    side, patch = vision.side("image_size"), vision.side("patch_size")
    tokens = (side // patch // 4) ** 2
    return ImageTokens(rule="fixed", image_size=side, patch=patch, tokens=tokens)


IMAGE_RULES: Final[Mapping[str, Callable[[Facts], ImageTokens]]] = {
    "qwen3_5": lambda facts: qwen(facts, "qwen3_5_vision"),
    "qwen3_5_moe": lambda facts: qwen(facts, "qwen3_5_moe_vision"),
    "qwen3_vl_moe": lambda facts: qwen(facts, "qwen3_vl_moe_vision"),
    "qwen2_5_omni_thinker": lambda facts: qwen(facts, "qwen2_5_omni_vision_encoder"),
    "glm4v": lambda facts: glm(facts, "glm4v_vision"),
    "glm4v_moe": lambda facts: glm(facts, "glm4v_moe_vision"),
    "glm_ocr": lambda facts: glm(facts, "glm_ocr_vision"),
    "paligemma": paligemma,
    "gemma3n": gemma3n,
    "mistral3": pixtral,
    "llava": pixtral_llava,
    "paddleocr_vl": paddleocr,
    "minicpmv4_6": minicpm_v,
    "idefics2": idefics2,
    "aya_vision": aya_vision,
    "got_ocr2": got_ocr2,
    "gemma4_unified": lambda facts: gemma4(facts, "Gemma4UnifiedImageProcessor"),
    "gemma4": gemma4,
    "llama4": llama4,
    "kimi_k25": kimi,
    "smolvlm": smolvlm,
    "idefics3": smolvlm,
    "llava_onevision": llava_onevision,
    "lfm2_vl": lfm2_vl,
}
"""By `model_type`: the rule of the image processor that transformers chooses for it (5.23.0
`models/auto/image_processing_auto.py`)."""

TEXT_FIRST: Final = frozenset(
    {
        *("gemma3", "gemma3n", "gemma4", "gemma4_unified", "kimi_k25", "llama4", "mistral3"),
        *("qwen3_5", "qwen3_5_moe"),
    }
)
"""Families that see and are their maker's text models of that generation too: no other class of the
same generation and size reads text alone. Their samples are taken to hold text alone where a spec
says nothing of images, and no card says that the weights are made for images.
"""
