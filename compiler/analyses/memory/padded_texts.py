"""The rows that modules and layers work on, per token of the text.

Some classes pad each text to whole windows (`Architecture.window`).
"""

from collections.abc import Sequence

from tunec.compiler.analyses.memory.modules import is_in_encoder
from tunec.schemas.models.architecture import Architecture, Module, Stack
from tunec.schemas.models.layer_measures import filled_up


def rows_of(model: Architecture, module: Module, tokens: float) -> float:
    """How often a module runs per token; without text, the module's positions per token."""
    if module.positions:
        return module.positions / tokens
    pads = model.window and (model.kind != "encoder-decoder" or is_in_encoder(module))
    return module.calls * (filled_up(tokens, model.window) / tokens if pads else 1.0)


def filled(model: Architecture, stacks: Sequence[Stack], tokens: float) -> float:
    """The rows of a layer per token, on average."""
    if not model.window:
        return 1.0
    share = filled_up(tokens, model.window) / tokens - 1
    pad = sum(s.layers for s in stacks if model.kind != "encoder-decoder" or not s.cross_attention)
    return 1.0 + share * pad / sum(each.layers for each in stacks)
