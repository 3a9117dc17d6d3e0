"""What a model's own dropout keeps for its backward pass, in bytes a token and layer."""

from typing import Final

from tunec.compiler.analyses.memory.arithmetic import Arithmetic
from tunec.schemas.models.architecture import Architecture, Part, Stack

_MASK: Final = 1
"""Bytes an element of what was drawn (torch 2.13 `aten/src/ATen/native/cuda/Dropout.cu`,
`native_dropout_cuda`: a mask of booleans)."""

_FP32: Final = 4


def dropped_saved(
    model: Architecture, part: Part, stack: Stack, widths: Arithmetic, keys: float
) -> float:
    """Masks, and results that are read again where what was dropped is read as well.

    A dropped sum goes into the residual stream and is not read again. Attention's weights are in
    eager attention alone: kernels draw theirs anew. What the next product reads is the dropped
    result; what lies before it stays only if its own backward pass reads it: a softmax in the
    dtype of the products, a ReLU (T5 without gate). Masks of embeddings, once a model, are left
    out. Traced with transformers 5.23, GPT-2, OPT, BERT, BART, T5 and others.
    """
    drops = model.dropout
    if part != "text" or not (drops.states or drops.scores or drops.inner):
        return 0
    attentions = 1 + (widths.crosses and stack.cross_attention > 0)
    size = 0.0
    if drops.states:
        size += _MASK * stack.hidden * (1 + attentions)
    if drops.inner:
        rectified = model.family.endswith("t5") and not stack.gated
        size += stack.ffn * (_MASK + rectified * widths.compute)
    if drops.scores and widths.eager:
        cast = widths.wide_scores and widths.compute < _FP32
        kept = 0 if cast else widths.compute
        size += attentions * stack.heads * keys * (_MASK + kept)
    return size
