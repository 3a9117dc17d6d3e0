"""Vision-language models built like LLaVA: a tower, a projector, a decoder.

Read from transformers 5.23.0, `models/<family>/modeling_<family>.py`.
"""

from collections.abc import Callable, Mapping
from typing import Final

from tunec.compiler.analyses.architecture.assembly import Parts, vision_language
from tunec.compiler.analyses.architecture.backbones import BACKBONES
from tunec.compiler.analyses.architecture.decoder import Backbone
from tunec.compiler.analyses.architecture.facts import Facts
from tunec.compiler.analyses.architecture.tree import Tree
from tunec.compiler.analyses.architecture.vision import TOWERS, Tower
from tunec.schemas.models.architecture import Architecture, ImageTokens

_TOWER: Final = "model.vision_tower"
_PROJECTOR: Final = "model.multi_modal_projector"


def _text(facts: Facts, family: str) -> Backbone:
    section = facts.member("text_config", family, BACKBONES)
    return BACKBONES[section.family](section)


def _tower(facts: Facts, family: str) -> Tower:
    section = facts.member("vision_config", family, TOWERS)
    return TOWERS[section.family](section)


def _grow_mlp(tree: Tree, inputs: int, outputs: int, *, bias: bool) -> None:
    tree.linear("linear_1", outputs, inputs, bias=bias)
    tree.linear("linear_2", outputs, outputs, bias=bias)


def _feature_layers(facts: Facts) -> int:
    """Count the tower layers whose states the projector concatenates."""
    layers = facts.get("vision_feature_layer")
    if isinstance(layers, list | tuple):
        return max(len(layers), 1)
    return 1


def _tower_tokens(facts: Facts, tower: Tower) -> int:
    """Count the tokens that the projector gets of one image: class token only for `full`."""
    full = facts.choice("vision_feature_select_strategy", "default", "full") == "full"
    return tower.side**2 + (tower.lead_tokens if full else 0)


def llava(facts: Facts) -> Architecture:
    """Derive LLaVA 1.5: every image is resized to one square."""
    text, tower = _text(facts, "llama"), _tower(facts, "clip_vision_model")
    width = tower.hidden * _feature_layers(facts)
    bias = facts.flag("multimodal_projector_bias")

    def grow(tree: Tree) -> None:
        tower.grow(tree.at(_TOWER, "vision"))
        projector = tree.at(_PROJECTOR, "projector")
        _grow_mlp(projector, width, text.sizes.hidden, bias=bias)

    images = ImageTokens(
        rule="fixed",
        image_size=tower.image_size,
        patch=tower.patch,
        tokens=_tower_tokens(facts, tower),
        lead_tokens=tower.lead_tokens,
    )
    # LlavaConfig.__post_init__ takes the flag of the text config too.
    tied = facts.flag("tie_word_embeddings") or text.sizes.tied
    parts = Parts(backbone=text, tower=tower.stacks, images=images, grow=grow, tied=tied)
    return vision_language(facts, parts)


def llava_next(facts: Facts) -> Architecture:
    """Derive LLaVA-NeXT: an overview, and tiles of the canvas that fits the image best."""
    text, tower = _text(facts, "llama"), _tower(facts, "clip_vision_model")
    width = tower.hidden * _feature_layers(facts)
    bias = facts.flag("multimodal_projector_bias")

    def grow(tree: Tree) -> None:
        tree.at("model", "projector").parameter("image_newline", text.sizes.hidden)
        tower.grow(tree.at(_TOWER, "vision"))
        projector = tree.at(_PROJECTOR, "projector")
        _grow_mlp(projector, width, text.sizes.hidden, bias=bias)

    grids = _pinpoints(facts)
    images = ImageTokens(
        rule="llava-next",
        image_size=tower.image_size,
        patch=tower.patch,
        tokens=_tower_tokens(facts, tower),
        lead_tokens=tower.lead_tokens,
        grids=grids,
        max_slices=max(height * width // tower.image_size**2 for height, width in grids),
    )
    tied = facts.flag("tie_word_embeddings")
    parts = Parts(backbone=text, tower=tower.stacks, images=images, grow=grow, tied=tied)
    return vision_language(facts, parts)


_PINPOINTS: Final = ((336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008))
"""`LlavaNextConfig.__post_init__`."""


def _pinpoints(facts: Facts) -> tuple[tuple[int, int], ...]:
    found = facts.get("image_grid_pinpoints")
    if found is None:
        return _PINPOINTS
    try:
        grids = tuple((int(height), int(width)) for height, width in found)
    except (TypeError, ValueError):
        grids = ()
    if not grids:
        facts.refuse("image_grid_pinpoints", "a list of heights and widths")
    return grids or _PINPOINTS


def gemma3(facts: Facts) -> Architecture:
    """Derive Gemma 3: the tower's patches are averaged into a fixed number."""
    text, tower = _text(facts, "gemma3_text"), _tower(facts, "siglip_vision_model")

    def grow(tree: Tree) -> None:
        tower.grow(tree.at(_TOWER, "vision"))
        projector = tree.at(_PROJECTOR, "projector")
        projector.parameter("mm_input_projection_weight", tower.hidden, text.sizes.hidden)
        projector.norm("mm_soft_emb_norm", tower.hidden)

    tokens = facts.count("mm_tokens_per_image")
    images = ImageTokens(
        rule="fixed",
        image_size=tower.image_size,
        patch=tower.patch,
        merge=max(tower.side // max(int(tokens**0.5), 1), 1),
        tokens=tokens,
    )
    tied = facts.flag("tie_word_embeddings")
    parts = Parts(backbone=text, tower=tower.stacks, images=images, grow=grow, tied=tied)
    return vision_language(facts, parts)


def internvl(facts: Facts) -> Architecture:
    """Derive InternVL as in transformers: tiles, four patches shuffled into one token."""
    text, tower = _text(facts, "qwen2"), _tower(facts, "internvl_vision")
    merge = facts.parts("downsample_ratio")
    width = tower.hidden * merge**2

    def grow(tree: Tree) -> None:
        tower.grow(tree.at(_TOWER, "vision"))
        projector = tree.at(_PROJECTOR, "projector")
        projector.norm("layer_norm", width, bias=True)
        _grow_mlp(projector, width, text.sizes.hidden, bias=True)

    tiles = facts.processor("GotOcr2ImageProcessor")
    images = ImageTokens(
        rule="internvl",
        image_size=tower.image_size,
        patch=tower.patch,
        merge=merge,
        tokens=(tower.side // merge) ** 2,
        min_slices=tiles.count("min_patches"),
        max_slices=tiles.count("max_patches"),
        lead_tokens=tower.lead_tokens,
    )
    tied = facts.flag("tie_word_embeddings")
    parts = Parts(backbone=text, tower=tower.stacks, images=images, grow=grow, tied=tied)
    return vision_language(facts, parts)


VLMS: Final[Mapping[str, Callable[[Facts], Architecture]]] = {
    "llava": llava,
    "llava_next": llava_next,
    "gemma3": gemma3,
    "internvl": internvl,
}
