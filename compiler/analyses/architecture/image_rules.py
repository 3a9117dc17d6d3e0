"""How pictures become tokens in models whose architecture was read off their class: one row each.

A row reads the family's rule (`image_tokens`) off the model's config and its
preprocessor_config.json, with the defaults of the image processor's class where those are silent. A
family without a row takes no pictures in a plan.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tunec.compiler.analyses.architecture.facts import Facts, Findings, UnusableConfig
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Architecture, ImageTokens


def with_images(
    model: Architecture, config: Mapping[str, Any], processor: Mapping[str, Any]
) -> Architecture:
    """Add the image rule of its family to an architecture that was read off its class.

    Nothing is added where the family has no row, or the layers of its tower are not known. Raises
    UnusableConfig with every key that is missing or has the wrong type.
    """
    rule = IMAGE_RULES.get(model.family)
    if rule is None or not any(stack.part == "vision" for stack in model.stacks):
        return model
    findings = Findings()
    images = rule(Facts(config, model.family, findings=findings, processing=processor))
    if findings.faults:
        raise UnusableConfig(model.family, findings.faults)
    return replace(model, images=images)


def qwen(facts: Facts, vision_family: str) -> ImageTokens:
    """Qwen-VL: any size between two bounds on pixels, `merge` patches a side to one token.

    The bounds are `min_pixels` and `max_pixels`, or `size` in newer files.
    """
    vision = facts.section("vision_config", vision_family)
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


IMAGE_RULES: Final[Mapping[str, Callable[[Facts], ImageTokens]]] = {
    # transformers 5.23.0 models/auto/image_processing_auto.py: Qwen2VLImageProcessor
    "qwen3_5": lambda facts: qwen(facts, "qwen3_5_vision"),
    "qwen3_5_moe": lambda facts: qwen(facts, "qwen3_5_moe_vision"),
    "qwen3_vl_moe": lambda facts: qwen(facts, "qwen3_vl_moe_vision"),
}
"""By `model_type`: the image processor that `AutoImageProcessor` chooses for it."""
