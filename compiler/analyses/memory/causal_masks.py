"""Causal masks that a model holds as buffers, of all the positions that it knows."""

from typing import Final

from tunec.compiler.analyses.memory.workload import Workload

_ONCE: Final = frozenset({"gpt_bigcode"})
_EACH_LAYER: Final = frozenset({"gpt_neo"})
"""transformers 5.23 `models/gpt_bigcode/modeling_gpt_bigcode.py`, `GPTBigCodeModel.bias`, and
`models/gpt_neo/modeling_gpt_neo.py`, `GPTNeoSelfAttention.bias`: booleans, a byte each."""


def causal_masks(workload: Workload) -> float:
    """Bytes of these buffers on each rank: nothing splits them."""
    model = workload.architecture
    if model.family in _ONCE:
        return float((model.context or 0) ** 2)
    if model.family in _EACH_LAYER:
        return float(sum(stack.layers for stack in model.stacks) * (model.context or 0) ** 2)
    return 0.0
