"""Vision towers: what turns the pixels of one image or slice into patch states.

Read from transformers 5.23.0, `models/<family>/modeling_<family>.py`.
"""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from tunec.compiler.analyses.architecture.decoder import (
    Backbone,
    Dimensions,
    Names,
    classic_sizes,
    dense,
)
from tunec.compiler.analyses.architecture.facts import Facts
from tunec.compiler.analyses.architecture.tree import Tree
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Stack

Grow = Callable[[Tree], None]


class Tower(Struct, frozen=True):
    """A vision tower: its layers, its other modules, and the width of its output."""

    stacks: tuple[Stack, ...]
    hidden: int
    image_size: int
    patch: int
    lead_tokens: int
    grow: Grow

    @property
    def side(self) -> int:
        """The number of patches along one side of an image."""
        return self.image_size // self.patch


VIT: Final = Names(
    output="out_proj",
    gate="",
    up="fc1",
    down="fc2",
    norms=("layer_norm1", "layer_norm2"),
    final_norm="",
)
"""The names of CLIP and SigLIP layers."""


def vit_sizes(facts: Facts, heads_key: str = "num_attention_heads") -> Dimensions:
    """Read a plain vision transformer: layer norms, biases everywhere, full attention.

    `heads_key` is the config's word for the number of heads.
    """
    hidden, heads = facts.count("hidden_size"), facts.count(heads_key)
    layers, ffn = facts.count("num_hidden_layers"), facts.count("intermediate_size")
    return classic_sizes(hidden, layers, heads, ffn, causal=False)


def clip(facts: Facts) -> Tower:
    """Read a CLIP vision model: a class token, a norm before and after the layers."""
    layers = dense(VIT, vit_sizes(facts), "vision")
    hidden, channels = layers.sizes.hidden, facts.count("num_channels")
    image_size, patch = facts.side("image_size"), facts.side("patch_size")

    def grow(tree: Tree) -> None:
        embeddings = tree.at("embeddings")
        embeddings.parameter("class_embedding", hidden)
        embeddings.conv("patch_embedding", hidden, channels, patch, patch, bias=False)
        embeddings.embedding("position_embedding", (image_size // patch) ** 2 + 1, hidden)
        tree.norm("pre_layrnorm", hidden, bias=True)
        layers.grow_layers(tree.at("encoder"))
        tree.norm("post_layernorm", hidden, bias=True)

    return Tower(layers.stacks, hidden, image_size, patch, 1, grow)


def siglip(facts: Facts) -> Tower:
    """Read a SigLIP vision model, with its pooling head if `vision_use_head` is set."""
    return _siglip(facts, has_head=facts.flag("vision_use_head"))


def headless_siglip(facts: Facts) -> Tower:
    """Read a SigLIP encoder without a pooling head (Idefics2, MiniCPM-V)."""
    return _siglip(facts, has_head=False)


def _siglip(facts: Facts, *, has_head: bool) -> Tower:
    layers = dense(VIT, vit_sizes(facts), "vision")
    hidden, channels = layers.sizes.hidden, facts.count("num_channels")
    image_size, patch = facts.side("image_size"), facts.side("patch_size")

    def grow(tree: Tree) -> None:
        embeddings = tree.at("embeddings")
        embeddings.conv("patch_embedding", hidden, channels, patch, patch)
        embeddings.embedding("position_embedding", (image_size // patch) ** 2, hidden)
        layers.grow_layers(tree.at("encoder"))
        tree.norm("post_layernorm", hidden, bias=True)
        if has_head:
            _grow_pooling_head(tree.at("head"), layers.sizes)

    return Tower(layers.stacks, hidden, image_size, patch, 0, grow)


def _grow_pooling_head(head: Tree, sizes: Dimensions) -> None:
    """`SiglipMultiheadAttentionPoolingHead`: one learned query attends to all patches."""
    hidden = sizes.hidden
    head.parameter("probe", 1, 1, hidden)
    head.parameter("attention.in_proj_weight", 3 * hidden, hidden)
    head.parameter("attention.in_proj_bias", 3 * hidden)
    head.linear("attention.out_proj", hidden, hidden, bias=True)
    head.norm("layernorm", hidden, bias=True)
    head.linear("mlp.fc1", sizes.ffn, hidden, bias=True)
    head.linear("mlp.fc2", hidden, sizes.ffn, bias=True)


_INTERN: Final = replace(
    VIT,
    layers="layer",
    attention="attention",
    output="projection_layer",
    norms=("layernorm_before", "layernorm_after"),
)


def internvl(facts: Facts) -> Tower:
    """Read InternViT as transformers has it: a class token, a learned scale on each residual."""
    sizes = vit_sizes(facts)
    hidden, channels = sizes.hidden, facts.count("num_channels")
    is_rms = facts.choice("norm_type", "layer_norm", "rms_norm") == "rms_norm"
    qk_norm = (hidden,) if facts.flag("use_qk_norm") else ()
    sizes = replace(
        sizes,
        qkv_bias=facts.flag("attention_bias"),
        norm="rms" if is_rms else "layer",
        norm_bias=not is_rms,
        query_norm=qk_norm,
        key_norm=qk_norm,
    )
    layers = dense(_INTERN, sizes, "vision")
    image_size, patch = facts.side("image_size"), facts.side("patch_size")
    has_positions = facts.flag("use_absolute_position_embeddings")
    has_mask, pools = facts.flag("use_mask_token"), facts.flag("use_mean_pooling")

    def grow(tree: Tree) -> None:
        embeddings = tree.at("embeddings")
        embeddings.parameter("cls_token", 1, 1, hidden)
        if has_mask:
            embeddings.parameter("mask_token", 1, 1, hidden)
        if has_positions:
            rows = (image_size // patch) ** 2 + 1
            embeddings.parameter("position_embeddings", 1, rows, hidden)
        embeddings.conv("patch_embeddings.projection", hidden, channels, patch, patch)
        layers.grow_layers(tree.at("encoder"))
        layer = tree.at("encoder").each("layer", range(sizes.layers))
        layer.parameter("lambda_1", hidden)
        layer.parameter("lambda_2", hidden)
        if not pools:
            tree.norm("layernorm", hidden, bias=True)

    return Tower(layers.stacks, hidden, image_size, patch, 1, grow)


QWEN_BLOCKS: Final = Names(
    layers="blocks",
    attention="attn",
    fused="qkv",
    output="proj",
    gate="",
    up="fc1",
    down="fc2",
    norms=("norm1", "norm2"),
    final_norm="",
)
"""The names of Qwen2-VL's vision blocks."""


def qwen_layers(facts: Facts, names: Names, hidden: int, ffn: int) -> Backbone:
    """Put the vision blocks of a Qwen-VL together; Qwen2.5 has RMS norms and a gate."""
    heads, gated = facts.count("num_heads"), bool(names.gate)
    sizes = classic_sizes(hidden, facts.count("depth"), heads, ffn, causal=False)
    sizes = replace(sizes, norm="rms", norm_bias=False) if gated else sizes
    return dense(names, sizes, "vision")


TOWERS: Final[Mapping[str, Callable[[Facts], Tower]]] = {
    "clip_vision_model": clip,
    "siglip_vision_model": siglip,
    "internvl_vision": internvl,
    "idefics2_vision": headless_siglip,
}
"""Towers that a vision-language model of another family may hold, by their `model_type`."""
