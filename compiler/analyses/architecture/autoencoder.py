"""AutoencoderKL, and the convolutional blocks that UNets share with it."""

from collections.abc import Sequence

from tunec.compiler.analyses.architecture.facts import Facts
from tunec.compiler.analyses.architecture.tree import Tree
from tunec.schemas.models.architecture import Architecture


def resnet(tree: Tree, inputs: int, outputs: int, time: int = 0) -> None:
    """Add a `ResnetBlock2D`; `time` is the width of the time embedding, 0 if it has none."""
    tree.norm("norm1", inputs, bias=True)
    tree.conv("conv1", outputs, inputs, 3, 3)
    if time:
        tree.linear("time_emb_proj", outputs, time, bias=True)
    tree.norm("norm2", outputs, bias=True)
    tree.conv("conv2", outputs, outputs, 3, 3)
    if inputs != outputs:
        tree.conv("conv_shortcut", outputs, inputs, 1, 1)


def resnets(block: Tree, inputs: int, outputs: int, count: int, time: int = 0) -> None:
    """Add a block's residual blocks: the first takes `inputs`, all give `outputs` channels."""
    if inputs == outputs:
        resnet(block.each("resnets", range(count)), outputs, outputs, time)
        return
    resnet(block.each("resnets", range(min(count, 1))), inputs, outputs, time)
    resnet(block.each("resnets", range(1, count)), outputs, outputs, time)


def resample(block: Tree, name: str, channels: int) -> None:
    """Add the convolution of a `Downsample2D` (`downsamplers`) or `Upsample2D` (`upsamplers`)."""
    block.each(name, range(1)).conv("conv", channels, channels, 3, 3)


def spatial_attention(tree: Tree, channels: int) -> None:
    """Add the attention in the middle of an autoencoder."""
    tree.norm("group_norm", channels, bias=True)
    for name in ("to_q", "to_k", "to_v", "to_out.0"):
        tree.linear(name, channels, channels, bias=True)


def autoencoder_kl(facts: Facts) -> Architecture:
    """Derive an AutoencoderKL of plain blocks."""
    channels = facts.channels("block_out_channels")
    layers, latent = facts.count("layers_per_block"), facts.count("latent_channels")
    attends = facts.flag("mid_block_add_attention")
    _check_blocks(facts, "down_block_types", "DownEncoderBlock2D", len(channels))
    _check_blocks(facts, "up_block_types", "UpDecoderBlock2D", len(channels))
    tree = Tree("vae")
    encoder, decoder = tree.at("encoder"), tree.at("decoder")
    _grow_encoder(encoder, channels, layers, facts.count("in_channels"), latent)
    _grow_decoder(decoder, channels, layers, facts.count("out_channels"), latent)
    for half in (encoder, decoder):
        _grow_middle(half.at("mid_block"), channels[-1], attends=attends)
    if facts.flag("use_quant_conv"):
        tree.conv("quant_conv", 2 * latent, 2 * latent, 1, 1)
    if facts.flag("use_post_quant_conv"):
        tree.conv("post_quant_conv", latent, latent, 1, 1)
    return Architecture(
        family=facts.family,
        kind="autoencoder",
        modules=tree.modules(),
        stacks=(),
        hidden=channels[-1],
        vocab=0,
        context=0,
        tied=False,
        latent_channels=latent,
        latent_scale=2 ** (len(channels) - 1),
    )


def _check_blocks(facts: Facts, key: str, kind: str, count: int) -> None:
    if facts.texts(key) != (kind,) * count:
        facts.refuse(key, f"{count} times {kind}")


def _grow_encoder(
    tree: Tree, channels: Sequence[int], layers: int, pixels: int, latent: int
) -> None:
    tree.conv("conv_in", channels[0], pixels, 3, 3)
    inputs = channels[0]
    for level, outputs in enumerate(channels):
        block = tree.each("down_blocks", (level,))
        resnets(block, inputs, outputs, layers)
        if level < len(channels) - 1:
            resample(block, "downsamplers", outputs)
        inputs = outputs
    tree.norm("conv_norm_out", channels[-1], bias=True)
    tree.conv("conv_out", 2 * latent, channels[-1], 3, 3)


def _grow_decoder(
    tree: Tree, channels: Sequence[int], layers: int, pixels: int, latent: int
) -> None:
    tree.conv("conv_in", channels[-1], latent, 3, 3)
    inputs = channels[-1]
    for level, outputs in enumerate(reversed(channels)):
        block = tree.each("up_blocks", (level,))
        resnets(block, inputs, outputs, layers + 1)
        if level < len(channels) - 1:
            resample(block, "upsamplers", outputs)
        inputs = outputs
    tree.norm("conv_norm_out", channels[0], bias=True)
    tree.conv("conv_out", pixels, channels[0], 3, 3)


def _grow_middle(block: Tree, channels: int, *, attends: bool) -> None:
    resnet(block.each("resnets", range(2)), channels, channels)
    if attends:
        spatial_attention(block.each("attentions", range(1)), channels)
