"""Where in a model a module stands, by its path: behind attention, or in a tower."""

import re
from collections.abc import Iterable
from typing import Final

from tunec.schemas.models.architecture import Architecture, Module, Part

_READS_ATTENTION: Final = re.compile(
    r"(o_proj|out_proj|to_out\.0|to_add_out|attn\.proj|attention\.dense)$"
)
"""Projections of the attention's output, which its kernel keeps anyway."""
_FEED_FORWARD: Final = re.compile(r"(mlp|ffn|feed_forward|experts|fc1|fc2|ff)\b")
_OF_CONDITIONS: Final = re.compile(
    r"(norm\w*\.linear|time_emb_proj|attn2\.to_[kv])$"
    r"|^(time_|add_embedding|x_embedder|context_embedder|pos_embed|conv_in)"
)
_OF_PICTURES: Final[frozenset[Part]] = frozenset({"vision", "projector"})


def reads_attention(module: Module) -> bool:
    """Whether a layer's module reads what attention gives."""
    return bool(_READS_ATTENTION.search(module.path))


def is_after_attention(module: Module) -> bool:
    """Whether a layer's module reads what attention gives, or comes behind it."""
    return reads_attention(module) or is_in_feed_forward(module)


def is_in_feed_forward(module: Module) -> bool:
    """Whether a layer's module is part of its feed-forward."""
    return bool(_FEED_FORWARD.search(module.path))


def wants_gradient(model: Architecture, module: Module) -> bool:
    """Whether what a product reads may want a gradient: not what is made of time and text.

    diffusers 0.42 `transformer_flux.py`, `transformer_sd3.py`, `unet_2d_condition.py`: the inputs
    of these come from nothing that is trained.
    """
    return model.kind != "diffusion" or not _OF_CONDITIONS.search(module.path)


def tower_of(modules: Iterable[Module]) -> tuple[Module, ...]:
    """Those of some modules that only pictures pass."""
    return tuple(module for module in modules if module.part in _OF_PICTURES)
