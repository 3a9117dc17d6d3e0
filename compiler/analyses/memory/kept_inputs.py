"""What a product reads that the layer keeps anyway, so that an adapter beside it keeps no more."""

import re
from typing import Final

from tunec.compiler.analyses.memory.arithmetic import Arithmetic
from tunec.compiler.analyses.memory.modules import reads_attention
from tunec.schemas.caches import cached
from tunec.schemas.models.architecture import Architecture, Module

_OF_STATES: Final = re.compile(r"(\b(conv|mamba|linear_attn)\.\w+|mixer\.out_proj)$")
"""Projections of what a convolution or a state space gives, which are called as attention's are
(transformers 5.23 `Lfm2ShortConv`, `Mamba2`, `Qwen3NextGatedDeltaNet` and their like)."""
_LINEAR: Final = frozenset({"SanaTransformer2DModel", "SanaVideoTransformer3DModel"})
"""Denoisers whose first attention in a block is linear, whose result nothing keeps (diffusers 0.42
`attention_processor.py`, `SanaLinearAttnProcessor2_0`; `transformer_sana_video.py`)."""
_GATES: Final = ("gate_proj", "g_proj")
"""How the projection of a gate on what attention gives is called in it."""


def is_kept(
    model: Architecture,
    module: Module,
    widths: Arithmetic,
    *,
    in_order: bool,
    several: bool = False,
) -> bool:
    """Whether a module reads a tensor that is kept without it, in the dtype of products.

    `in_order`: whether attention gives its result in token order whatever it is given. `several`:
    whether a micro batch has more than one sample. A model that hears hands attention copies in the
    order of heads (transformers 5.23 `WhisperAttention.forward`).
    """
    if _is_of_relu(model, module, widths):
        return True
    as_given = in_order or (widths.rotary != "concatenated" and not model.source)
    copied = several and _reads_part(model, module)
    return as_given and not copied and _reads_kernel(model, module)


def _reads_part(model: Architecture, module: Module) -> bool:
    """Whether a module reads the picture's or the text's share of what one kernel gave for both.

    Such shares of several samples do not lie together, so that a product copies its own (diffusers
    0.42 `transformer_flux.py`, `FluxAttnProcessor`: `split_with_sizes`; traced).
    """
    parent = module.path.partition(".to_")[0]
    return f"{parent}.to_add_out" in _paths(model)


@cached(256)
def _paths(model: Architecture) -> frozenset[str]:
    return frozenset(module.path for module in model.modules)


def _reads_kernel(model: Architecture, module: Module) -> bool:
    """Whether a module reads what attention's kernel gives, as it is."""
    if not reads_attention(module) or _OF_STATES.search(module.path):
        return False
    if model.family in _LINEAR and ".attn1." in module.path:
        return False
    return (module.path, module.indices) not in _gated(model)


@cached(256)
def _gated(model: Architecture) -> frozenset[tuple[str, object]]:
    """Projections that read what attention gives times a gate of each element.

    The gate is a projection of its own (AFMoE), or half of the queries' (Qwen3-Next, Qwen3.5).
    """
    parts = [(*m.path.rpartition(".")[::2], m) for m in model.modules if m.kind == "linear"]
    apart = {parent for parent, name, _ in parts if name in _GATES and parent.endswith("attn")}
    queries = {(parent, m.indices): m.shape[0] for parent, name, m in parts if name == "q_proj"}
    return frozenset(
        (m.path, m.indices)
        for parent, _, m in parts
        if reads_attention(m)
        if parent in apart or queries.get((parent, m.indices)) == 2 * m.shape[-1]
    )


def _is_of_relu(model: Architecture, module: Module, widths: Arithmetic) -> bool:
    """Whether a module reads what a ReLU gave and keeps, neither copied nor dropped in part."""
    if widths.activation != "relu" or widths.copies_inner or model.dropout.inner:
        return False
    own = (each.ffn for each in model.stacks if each.part == module.part and not each.gated)
    as_given = widths.answer == widths.compute and module.shape[0] == model.hidden
    return as_given and module.shape[-1] in own
