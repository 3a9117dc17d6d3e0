"""The lists of blocks of a diffusion transformer."""

from collections.abc import Iterator
from typing import Final

import torch

PRODUCTS: Final = (torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
"""Module types that multiply rows with a weight."""
_LEAST_PRODUCTS: Final = 2
"""The least number of linear layers and convolutions in a block; a list whose items have fewer does
not hold blocks."""


def lists(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.ModuleList]]:
    """The outermost lists of blocks that are each recomputed as a whole, with their paths.

    A block that recomputes its own parts does not count: the blocks of a UNet are lists of such
    parts.
    """
    found: list[str] = []
    for path, module in model.named_modules():
        inside = any(path.startswith(f"{each}.") for each in found)
        if isinstance(module, torch.nn.ModuleList) and not inside and _is_of_blocks(module):
            if any(hasattr(each, "gradient_checkpointing") for each in module):
                continue
            found.append(path)
            yield path, module


def _is_of_blocks(blocks: torch.nn.ModuleList) -> bool:
    return len(blocks) > 0 and all(len(_products(each)) >= _LEAST_PRODUCTS for each in blocks)


def _products(block: torch.nn.Module) -> list[torch.nn.Module]:
    return [each for each in block.modules() if isinstance(each, PRODUCTS)]
