"""UNet2DConditionModel: Stable Diffusion 1.x, 2.x and XL, and Kolors.

Read from diffusers 0.42.1, `models/unets/unet_2d_condition.py` and `unet_2d_blocks.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.analyses.architecture.autoencoder import resample, resnet, resnets
from tunec.compiler.analyses.architecture.facts import Facts
from tunec.compiler.analyses.architecture.tree import Tree
from tunec.schemas.models.architecture import Architecture, UnetLevel

_ATTENDS: Final[Mapping[str, bool]] = {
    "DownBlock2D": False,
    "CrossAttnDownBlock2D": True,
    "UpBlock2D": False,
    "CrossAttnUpBlock2D": True,
}
_UNSUPPORTED: Final[Mapping[str, Any]] = {
    "class_embed_type": None,
    "num_class_embeds": None,
    "num_attention_heads": None,
    "time_cond_proj_dim": None,
    "cross_attention_norm": None,
    "dual_cross_attention": False,
    "only_cross_attention": False,
    "resnet_time_scale_shift": "default",
    "time_embedding_type": "positional",
    "attention_type": "default",
    "mid_block_type": "UNetMidBlock2DCrossAttn",
}
"""Options that change the tree, and the one value of each that this derivation supports."""


_TEXT: Final = {False: 77, True: 256}
"""Tokens of text: CLIP's (`model_max_length`), or those of a language model whose states are
projected (`pipelines/kolors/pipeline_kolors.py`, `max_sequence_length`)."""


class Level(Struct, frozen=True):
    """One resolution as the config describes it."""

    channels: int
    layers: int
    depth: int
    heads: int
    cross: int
    down_attends: bool
    up_attends: bool
    scale: int
    text: int


class Unet(Struct, frozen=True):
    """What the blocks of one UNet have in common."""

    time: int
    is_linear: bool
    """Transformers project with linear layers, not with convolutions of size 1."""

    def grow_transformers(self, block: Tree, level: Level, count: int) -> None:
        """Add `count` `Transformer2DModel`s to a block."""
        tree, channels = block.each("attentions", range(count)), level.channels
        tree.norm("norm", channels, bias=True)
        for name in ("proj_in", "proj_out"):
            if self.is_linear:
                tree.linear(name, channels, channels, bias=True)
            else:
                tree.conv(name, channels, channels, 1, 1)
        layer = tree.each("transformer_blocks", range(level.depth))
        for name in ("norm1", "norm2", "norm3"):
            layer.norm(name, channels, bias=True)
        _grow_attention(layer.at("attn1"), channels, channels)
        _grow_attention(layer.at("attn2"), channels, level.cross)
        layer.linear("ff.net.0.proj", 8 * channels, channels, bias=True)
        layer.linear("ff.net.2", channels, 4 * channels, bias=True)

    def grow_down(self, tree: Tree, levels: Sequence[Level]) -> None:
        """Add the down path."""
        inputs = levels[0].channels
        for index, level in enumerate(levels):
            block = tree.each("down_blocks", (index,))
            resnets(block, inputs, level.channels, level.layers, self.time)
            if level.down_attends:
                self.grow_transformers(block, level, level.layers)
            if index < len(levels) - 1:
                resample(block, "downsamplers", level.channels)
            inputs = level.channels

    def grow_up(self, tree: Tree, levels: Sequence[Level]) -> None:
        """Add the up path; each residual block reads a skip connection of the down path."""
        upward = tuple(reversed(levels))
        before = upward[0].channels
        for index, level in enumerate(upward):
            block = tree.each("up_blocks", (index,))
            skipped = upward[min(index + 1, len(upward) - 1)].channels
            count = level.layers + 1
            for position in range(count):
                taken = before if position == 0 else level.channels
                aside = skipped if position == count - 1 else level.channels
                unit = block.each("resnets", (position,))
                resnet(unit, taken + aside, level.channels, self.time)
            if level.up_attends:
                self.grow_transformers(block, level, count)
            if index < len(upward) - 1:
                resample(block, "upsamplers", level.channels)
            before = level.channels


def unet_2d_condition(facts: Facts) -> Architecture:
    """Derive a UNet2DConditionModel."""
    for key, value in _UNSUPPORTED.items():
        if facts.get(key) != value:
            facts.refuse(key, repr(value))
    projected = _text_width(facts)
    levels = _levels(facts, _TEXT[projected > 0])
    first, last, latents = levels[0].channels, levels[-1], facts.count("in_channels")
    time = facts.count_or("time_embedding_dim", 4 * first)
    unet = Unet(time, facts.flag("use_linear_projection"))
    tree = Tree("denoiser")
    tree.conv("conv_in", first, latents, 3, 3)
    _grow_embedding(tree.at("time_embedding"), time, first)
    if projected:
        tree.linear("encoder_hid_proj", levels[0].cross, projected, bias=True)
    _grow_conditions(facts, tree, time)
    unet.grow_down(tree, levels)
    middle = tree.at("mid_block")
    resnet(middle.each("resnets", range(2)), last.channels, last.channels, time)
    unet.grow_transformers(middle, last, 1)
    unet.grow_up(tree, levels)
    tree.norm("conv_norm_out", first, bias=True)
    tree.conv("conv_out", facts.count("out_channels"), first, 3, 3)
    return Architecture(
        family=facts.family,
        kind="diffusion",
        modules=tree.modules(),
        stacks=(),
        hidden=first,
        vocab=0,
        context=0,
        tied=False,
        unet=tuple(_summed(level, is_last=level is last) for level in levels),
        latent_channels=latents,
    )


def _text_width(facts: Facts) -> int:
    """Width of text states that are projected first; 0: they are read unchanged."""
    kind = facts.get("encoder_hid_dim_type")
    if kind not in (None, "text_proj"):
        facts.refuse("encoder_hid_dim_type", "text_proj or null")
    return 0 if facts.get("encoder_hid_dim") is None else facts.count("encoder_hid_dim")


def _grow_conditions(facts: Facts, tree: Tree, time: int) -> None:
    """Add SDXL's other conditions besides the text: sizes and crops, pooled text."""
    kind = facts.get("addition_embed_type")
    if kind == "text_time":
        inputs = facts.count("projection_class_embeddings_input_dim")
        _grow_embedding(tree.at("add_embedding"), time, inputs)
    elif kind is not None:
        facts.refuse("addition_embed_type", "text_time or null")


def _grow_embedding(tree: Tree, width: int, inputs: int) -> None:
    tree.linear("linear_1", width, inputs, bias=True)
    tree.linear("linear_2", width, width, bias=True)


def _grow_attention(tree: Tree, channels: int, attended: int) -> None:
    tree.linear("to_q", channels, channels)
    tree.linear("to_k", channels, attended)
    tree.linear("to_v", channels, attended)
    tree.linear("to_out.0", channels, channels, bias=True)


def _levels(facts: Facts, text: int) -> tuple[Level, ...]:
    channels = facts.channels("block_out_channels")
    count = len(channels)
    layers, depths = (
        facts.each_of(key, count) for key in ("layers_per_block", "transformer_layers_per_block")
    )
    # `attention_head_dim` is the number of heads: the name is a known mistake of the class.
    heads, cross = (facts.each_of(k, count) for k in ("attention_head_dim", "cross_attention_dim"))
    down = _attends(facts, "down_block_types", count)
    up = _attends(facts, "up_block_types", count)[::-1]
    return tuple(
        Level(
            channels=channels[i],
            layers=layers[i],
            depth=depths[i],
            heads=heads[i],
            cross=cross[i],
            down_attends=down[i],
            up_attends=up[i],
            scale=2**i,
            text=text,
        )
        for i in range(count)
    )


def _attends(facts: Facts, key: str, count: int) -> tuple[bool, ...]:
    kinds = facts.texts(key)
    if len(kinds) != count or not all(kind in _ATTENDS for kind in kinds):
        facts.refuse(key, f"{count} of " + ", ".join(_ATTENDS))
        return (False,) * count
    return tuple(_ATTENDS[kind] for kind in kinds)


def _summed(level: Level, *, is_last: bool) -> UnetLevel:
    attending = level.layers * level.down_attends + (level.layers + 1) * level.up_attends + is_last
    return UnetLevel(
        channels=level.channels,
        resnets=2 * level.layers + 1 + 2 * is_last,
        transformers=attending,
        depth=level.depth if attending else 0,
        scale=level.scale,
        heads=level.heads if attending else 0,
        cross_attention=level.cross if attending else 0,
        ffn=4 * level.channels if attending else 0,
        text_tokens=level.text,
    )
