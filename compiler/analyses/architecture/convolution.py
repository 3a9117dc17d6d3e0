"""The convolutional blocks that UNets and autoencoders share.

Read from diffusers 0.42.1, `models/resnet.py`, `models/unets/unet_2d_blocks.py`.
"""

from tunec.compiler.analyses.architecture.tree import Tree


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
