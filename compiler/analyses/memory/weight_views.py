"""Weights of which a product saves a view, which ZeRO's stage 3 cannot free.

DeepSpeed releases a parameter by `param.data = empty(0)`. Its own product of linear layers saves
the parameter itself (0.19.8 `runtime/zero/linear.py`, `LinearFunctionForZeroStage3`), but another
product saves a view of the gathered weight, and the graph keeps that in memory: of the experts of
a layer, which are one tensor (transformers 5.23 `integrations/moe.py`, `_grouped_linear`), and of
Falcon's layers, which multiply with `weight.T` (`models/falcon/modeling_falcon.py`,
`FalconLinear.forward`). Traced.
"""

from typing import Final

from tunec.compiler.analyses.memory.modules import is_stack
from tunec.schemas.models.architecture import Architecture, Module

_OWN_PRODUCTS: Final = frozenset({"falcon"})
"""Families whose layers have a class of linear layers that does not call torch's function."""


def has_own_products(model: Architecture) -> bool:
    """Whether every linear layer in the model's layers saves a view of its weight."""
    return model.family in _OWN_PRODUCTS


def saves_view(model: Architecture, module: Module, *, merges: bool) -> bool:
    """Whether a product with a module's weight saves a view of it.

    `merges`: whether PEFT adds adapters to a copy of the experts, of which the view is then (0.21.2
    `tuners/lora/layer.py`, `_LoraFactorsProxy`).
    """
    own = has_own_products(model) and module.kind == "linear" and "{}" in module.path
    return own or (is_stack(module) and not merges)
