"""Operations of a UNet, whose modules work at several resolutions."""

from math import prod

from tunec.compiler.analyses.memory.unet import TEXT_TOKENS, levels, module_positions
from tunec.compiler.analyses.memory.workload import Workload
from tunec.schemas.models.architecture import Module


def unet_products(workload: Workload) -> float:
    """Weights of products and convolutions, each as often as one sample's elements meet it."""
    every = levels(workload)
    return sum(
        prod(module.shape) * module.copies * module_positions(module, every)
        for module in workload.architecture.modules
        if module.kind in ("linear", "conv")
    )


def unet_tokens(workload: Workload, module: Module) -> float:
    """Elements of one channel on which a module works."""
    return module_positions(module, levels(workload))


def unet_scores(workload: Workload) -> float:
    """Operations of one sample's attention scores, forward: to its own level and to the text."""
    return sum(
        4 * at.level.channels * at.positions * (at.positions + TEXT_TOKENS) * at.layers
        for at in levels(workload)
    )
