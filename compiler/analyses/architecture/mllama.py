"""Llama 3.2 Vision: tiles of an image, to which some decoder layers cross-attend.

Read from transformers 5.23.0, `models/mllama/modeling_mllama.py`.
"""

from typing import Final

from msgspec import Struct

from tunec.compiler.analyses.architecture.assembly import Parts, vision_language
from tunec.compiler.analyses.architecture.decoder import (
    Backbone,
    Dimensions,
    Names,
    dense,
    dense_mlp,
    stack,
)
from tunec.compiler.analyses.architecture.decoders import Dialect, dimensions
from tunec.compiler.analyses.architecture.facts import Facts
from tunec.compiler.analyses.architecture.tree import Tree
from tunec.compiler.analyses.architecture.vision import vit_sizes
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Architecture, ImageTokens, Stack

_VISION: Final = "model.vision_model"
_LAYERS: Final = Names(gate="", up="fc1", down="fc2", final_norm="")
_DIALECT: Final = Dialect(qkv_bias=False, output_bias=False)


class CrossedLayers(Struct, frozen=True):
    """The attention of a decoder in which some layers attend to the image, not to the text."""

    crossed: tuple[int, ...]

    def __call__(self, root: Tree, names: Names, sizes: Dimensions) -> None:
        """Add the attention of all layers."""
        plain = [layer for layer in range(sizes.layers) if layer not in self.crossed]
        _grow_attention(root.each(names.layers, plain).at("self_attn"), names, sizes)
        layer = root.each(names.layers, self.crossed)
        layer.parameter("cross_attn_attn_gate", 1)
        layer.parameter("cross_attn_mlp_gate", 1)
        cross = layer.at("cross_attn")
        _grow_attention(cross, names, sizes)
        cross.norm("q_norm", sizes.head_dim)
        cross.norm("k_norm", sizes.head_dim)


def _grow_attention(attention: Tree, names: Names, sizes: Dimensions) -> None:
    width, kv_width = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    attention.linear(names.query, width, sizes.hidden)
    attention.linear(names.key, kv_width, sizes.hidden)
    attention.linear(names.value, kv_width, sizes.hidden)
    attention.linear(names.output, sizes.hidden, width)


class TiledTower(Struct, frozen=True):
    """The vision model: local layers over all tiles together, then gated global ones."""

    local: Backbone
    global_: Backbone
    rows: int
    """Patches of a tile, and the class token."""
    tiles: int
    ratios: int
    patch: int
    channels: int

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """The local and the global layers."""
        return *self.local.stacks, *self.global_.stacks

    def grow(self, tree: Tree) -> None:
        """Add the vision model."""
        hidden = self.local.sizes.hidden
        tree.parameter("class_embedding", hidden)
        tree.conv("patch_embedding", hidden, self.channels, self.patch, self.patch, bias=False)
        positions = tree.at("gated_positional_embedding")
        positions.parameter("gate", 1)
        positions.parameter("embedding", self.rows, hidden)
        across = self.tiles * self.rows * hidden
        positions.embedding("tile_embedding", self.ratios + 1, across)
        for name in ("pre_tile_positional_embedding", "post_tile_positional_embedding"):
            tree.at(name).parameter("gate", 1)
            tree.at(name).embedding("embedding", self.ratios + 1, self.tiles * hidden)
        tree.norm("layernorm_pre", hidden, bias=True)
        tree.norm("layernorm_post", hidden, bias=True)
        self.local.grow_layers(tree.at("transformer"))
        self.global_.grow_layers(tree.at("global_transformer"))
        gated = tree.at("global_transformer").each("layers", range(self.global_.sizes.layers))
        gated.parameter("gate_attn", 1)
        gated.parameter("gate_ffn", 1)


def _tower(facts: Facts) -> TiledTower:
    sizes = replace(vit_sizes(facts, "attention_heads"), qkv_bias=False, output_bias=False)
    ratios = facts.get("supported_aspect_ratios")
    tiles, patch = facts.count("max_num_tiles"), facts.side("patch_size")
    return TiledTower(
        dense(_LAYERS, sizes, "vision"),
        dense(_LAYERS, replace(sizes, layers=facts.count("num_global_layers")), "vision"),
        (facts.side("image_size") // patch) ** 2 + 1,
        tiles,
        len(ratios) if isinstance(ratios, list | tuple) else _arrangements(tiles),
        patch,
        facts.count("num_channels"),
    )


def _arrangements(tiles: int) -> int:
    """Count the rectangles of at most so many tiles: 8 for 4, the config's default."""
    return sum(tiles // rows for rows in range(1, tiles + 1))


def _decoder(facts: Facts) -> Backbone:
    names = _DIALECT.names
    sizes = dimensions(facts, _DIALECT)
    sizes = replace(sizes, embedding_rows=sizes.vocab + 8, tied=False)
    crossed = facts.sizes("cross_attention_layers")
    if not facts.has("cross_attention_layers"):
        crossed = _CROSSED
    crossed = tuple(layer for layer in crossed if layer < sizes.layers)
    plain = stack(names, sizes, layers=sizes.layers - len(crossed))
    cross = replace(stack(names, sizes, layers=len(crossed)), cross_attention=sizes.hidden)
    stacks = tuple(kind for kind in (plain, replace(cross, qk_norm=True)) if kind.layers)
    return Backbone(names, sizes, stacks, CrossedLayers(crossed), dense_mlp)


_CROSSED: Final = (3, 8, 13, 18, 23, 28, 33, 38)
"""`MllamaTextConfig.__post_init__`."""


def mllama(facts: Facts) -> Architecture:
    """Derive Llama 3.2 Vision; its head is never tied, and has eight rows fewer."""
    text = _decoder(facts.section("text_config", "mllama_text_model"))
    vision = facts.section("vision_config", "mllama_vision_model")
    tower, outputs = _tower(vision), vision.count("vision_output_dim")

    def grow(tree: Tree) -> None:
        tower.grow(tree.at(_VISION, "vision"))
        projector = tree.at("model", "projector")
        projector.linear("multi_modal_projector", text.sizes.hidden, outputs, bias=True)

    images = ImageTokens(
        rule="mllama",
        image_size=vision.side("image_size"),
        patch=tower.patch,
        tokens=1,
        max_slices=tower.tiles,
        lead_tokens=1,
    )
    parts = Parts(backbone=text, tower=tower.stacks, images=images, grow=grow, tied=False)
    return vision_language(facts, parts)
