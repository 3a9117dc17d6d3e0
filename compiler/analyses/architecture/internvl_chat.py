"""InternVL in its own code (`trust_remote_code`): InternViT, a shuffle, a decoder.

Read from OpenGVLab/InternVL (2410d1dbf208), `internvl_chat/internvl/model/internvl_chat/` and
`internvl_chat/internvl/model/internlm2/`; the tiling is `dynamic_preprocess` of
`internvl_chat/internvl/train/dataset.py`.
"""

from typing import Final

from tunec.compiler.analyses.architecture.assembly import Parts, vision_language
from tunec.compiler.analyses.architecture.backbones import BACKBONES
from tunec.compiler.analyses.architecture.decoder import Backbone, dense
from tunec.compiler.analyses.architecture.facts import Facts
from tunec.compiler.analyses.architecture.tree import Tree
from tunec.compiler.analyses.architecture.vision import QWEN_BLOCKS, vit_sizes
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Architecture, ImageTokens

_LAYERS: Final = replace(QWEN_BLOCKS, layers="layers")
_DECODERS: Final = ("llama", "qwen2", "phi3", "internlm2", "qwen3", "qwen3_moe")


def internvl_chat(facts: Facts) -> Architecture:
    """Derive InternVL 1.5, 2, 2.5 or 3."""
    section = facts.member("llm_config", "internlm2", _DECODERS)
    text = BACKBONES[section.family](section)
    vision = facts.section("vision_config", "intern_vit_6b")
    tower = _intern_vit(vision)
    native, patch = vision.side("image_size"), vision.side("patch_size")
    size = facts.count_or("force_image_size", native)
    merge = facts.parts("downsample_ratio")
    width, hidden = tower.sizes.hidden, text.sizes.hidden
    rows = (size // patch) ** 2 + 1

    def grow(tree: Tree) -> None:
        _grow_vit(tree.at("vision_model", "vision"), vision, tower, rows)
        projector = tree.at("mlp1", "projector")
        projector.norm("0", width * merge**2, bias=True)
        projector.linear("1", hidden, width * merge**2, bias=True)
        projector.linear("3", hidden, hidden, bias=True)

    parts = Parts(
        backbone=text,
        tower=tower.stacks,
        images=_tiles(facts, size, patch, merge),
        grow=grow,
        tied=text.sizes.tied,
        text_root="language_model.model",
        head_root="language_model",
        remote_code=True,
    )
    return vision_language(facts, parts)


def _tiles(facts: Facts, size: int, patch: int, merge: int) -> ImageTokens:
    dynamic = facts.flag("dynamic_image_size")
    return ImageTokens(
        rule="internvl",
        image_size=size,
        patch=patch,
        merge=merge,
        tokens=(size // patch // merge) ** 2,
        min_slices=facts.count("min_dynamic_patch") if dynamic else 1,
        max_slices=facts.count("max_dynamic_patch") if dynamic else 1,
        lead_tokens=1,
    )


def _intern_vit(facts: Facts) -> Backbone:
    is_rms = facts.choice("norm_type", "rms_norm", "layer_norm") == "rms_norm"
    sizes = vit_sizes(facts)
    qk_norm = (sizes.hidden,) if facts.flag("qk_normalization") else ()
    sizes = replace(
        sizes,
        norm="rms" if is_rms else "layer",
        norm_bias=not is_rms,
        qkv_bias=facts.flag("qkv_bias"),
        query_norm=qk_norm,
        key_norm=qk_norm,
    )
    return dense(_LAYERS, sizes, "vision")


def _grow_vit(tree: Tree, vision: Facts, tower: Backbone, rows: int) -> None:
    """`InternVisionModel`; its positions are resampled to the configured image size."""
    sizes, patch = tower.sizes, vision.side("patch_size")
    embeddings = tree.at("embeddings")
    embeddings.parameter("class_embedding", 1, 1, sizes.hidden)
    embeddings.parameter("position_embedding", 1, rows, sizes.hidden)
    channels = vision.count("num_channels")
    embeddings.conv("patch_embedding", sizes.hidden, channels, patch, patch)
    tower.grow_layers(tree.at("encoder"))
    layer = tree.at("encoder").each("layers", range(sizes.layers))
    if sizes.query_norm:
        layer.norm("attn.q_norm", sizes.hidden)
        layer.norm("attn.k_norm", sizes.hidden)
    layer.parameter("ls1", sizes.hidden)
    layer.parameter("ls2", sizes.hidden)
