"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: images of any size, four patches merged into one token.

Read from transformers 5.23.0, `models/qwen2_vl`, `qwen2_5_vl` and `qwen3_vl`.
"""

from collections.abc import Callable, Mapping
from typing import Final

from tunec.compiler.analyses.architecture.assembly import Parts, vision_language
from tunec.compiler.analyses.architecture.decoder import Backbone
from tunec.compiler.analyses.architecture.decoders import DIALECTS, llama_like
from tunec.compiler.analyses.architecture.facts import Facts
from tunec.compiler.analyses.architecture.image_rules import qwen
from tunec.compiler.analyses.architecture.tree import Tree
from tunec.compiler.analyses.architecture.vision import QWEN_BLOCKS, qwen_layers
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Architecture

_VISUAL: Final = "model.visual"
_GATED: Final = replace(QWEN_BLOCKS, gate="gate_proj", up="up_proj", down="down_proj")
_DEEP: Final = replace(QWEN_BLOCKS, up="linear_fc1", down="linear_fc2")


def _text(facts: Facts, family: str, dialect: str) -> Backbone:
    """Read the decoder; configs from before transformers 4.52 have its keys at the top level."""
    nested = facts.has("text_config")
    section = facts.section("text_config", family) if nested else facts.as_family(family)
    return llama_like(DIALECTS[dialect], section)


def _tied(facts: Facts, text: Backbone) -> bool:
    """`Qwen2VLConfig.__post_init__` uses the flag of the text config too."""
    return facts.flag("tie_word_embeddings") or text.sizes.tied


def _grow_patches(tree: Tree, vision: Facts, hidden: int, *, bias: bool) -> None:
    patch, channels = vision.side("patch_size"), vision.count("in_channels")
    frames = vision.side("temporal_patch_size")
    tree.conv("patch_embed.proj", hidden, channels, frames, patch, patch, bias=bias)


def qwen2_vl(facts: Facts) -> Architecture:
    """Derive Qwen2-VL; its `vision_config.hidden_size` is the width of the decoder."""
    text = _text(facts, "qwen2_vl_text", "qwen2")
    vision = facts.section("vision_config", "qwen2_vl_vision")
    hidden = vision.count("embed_dim")
    layers = qwen_layers(vision, QWEN_BLOCKS, hidden, hidden * vision.count("mlp_ratio"))
    outputs, merged = vision.count("hidden_size"), hidden * vision.count("spatial_merge_size") ** 2

    def grow(tree: Tree) -> None:
        visual = tree.at(_VISUAL, "vision")
        _grow_patches(visual, vision, hidden, bias=False)
        layers.grow_layers(visual)
        merger = tree.at(f"{_VISUAL}.merger", "projector")
        merger.norm("ln_q", hidden, bias=True)
        merger.linear("mlp.0", merged, merged, bias=True)
        merger.linear("mlp.2", outputs, merged, bias=True)

    parts = Parts(
        backbone=text,
        tower=layers.stacks,
        images=qwen(facts, "qwen2_vl_vision"),
        grow=grow,
        tied=_tied(facts, text),
    )
    return vision_language(facts, parts)


def qwen2_5_vl(facts: Facts) -> Architecture:
    """Derive Qwen2.5-VL: gated blocks with RMS norms, most of them windowed."""
    text = _text(facts, "qwen2_5_vl_text", "qwen2")
    vision = facts.section("vision_config", "qwen2_5_vl_vision")
    hidden = vision.count("hidden_size")
    layers = qwen_layers(vision, _GATED, hidden, vision.count("intermediate_size"))
    outputs = vision.count("out_hidden_size")
    merged = hidden * vision.count("spatial_merge_size") ** 2

    def grow(tree: Tree) -> None:
        visual = tree.at(_VISUAL, "vision")
        _grow_patches(visual, vision, hidden, bias=False)
        layers.grow_layers(visual)
        merger = tree.at(f"{_VISUAL}.merger", "projector")
        merger.norm("ln_q", hidden)
        merger.linear("mlp.0", merged, merged, bias=True)
        merger.linear("mlp.2", outputs, merged, bias=True)

    side = vision.count("window_size") // vision.side("patch_size")
    windowed = layers.sizes.layers - len(vision.sizes("fullatt_block_indexes"))
    tower = replace(layers.stacks[0], window=side**2, windowed_layers=windowed)
    parts = Parts(
        backbone=text,
        tower=(tower,),
        images=qwen(facts, "qwen2_5_vl_vision"),
        grow=grow,
        tied=_tied(facts, text),
    )
    return vision_language(facts, parts)


def qwen3_vl(facts: Facts) -> Architecture:
    """Derive Qwen3-VL: learned positions, and a merger for each of some middle layers too."""
    text = llama_like(DIALECTS["qwen3"], facts.section("text_config", "qwen3_vl_text"))
    vision = facts.section("vision_config", "qwen3_vl_vision")
    hidden = vision.count("hidden_size")
    layers = qwen_layers(vision, _DEEP, hidden, vision.count("intermediate_size"))
    outputs = vision.count("out_hidden_size")
    merged = hidden * vision.count("spatial_merge_size") ** 2
    deep = range(len(vision.sizes("deepstack_visual_indexes")))

    def grow(tree: Tree) -> None:
        visual = tree.at(_VISUAL, "vision")
        _grow_patches(visual, vision, hidden, bias=True)
        visual.embedding("pos_embed", vision.count("num_position_embeddings"), hidden)
        layers.grow_layers(visual)
        projector = tree.at(_VISUAL, "projector")
        _grow_merger(projector.at("merger"), hidden, merged, outputs)
        _grow_merger(projector.each("deepstack_merger_list", deep), merged, merged, outputs)

    parts = Parts(
        backbone=text,
        tower=layers.stacks,
        images=qwen(facts, "qwen3_vl_vision"),
        grow=grow,
        tied=facts.flag("tie_word_embeddings"),
    )
    return vision_language(facts, parts)


def _grow_merger(merger: Tree, normed: int, merged: int, outputs: int) -> None:
    merger.norm("norm", normed, bias=True)
    merger.linear("linear_fc1", merged, merged, bias=True)
    merger.linear("linear_fc2", outputs, merged, bias=True)


QWEN_VLMS: Final[Mapping[str, Callable[[Facts], Architecture]]] = {
    "qwen2_vl": qwen2_vl,
    "qwen2_5_vl": qwen2_5_vl,
    "qwen3_vl": qwen3_vl,
}
