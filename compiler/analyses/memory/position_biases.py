"""The biases of relative positions that T5's attention adds to its scores, in bytes per token.

The kernel gets one contiguous bias per head. With a mask it is also one per sample: `torch.where`
puts the mask into the bias, whose layout it keeps, and a copy is contiguous (transformers 5.23
`integrations/sdpa_attention.py`, `create_position_bias_mask`). All sizes are traced.
"""

from typing import Final

from tunec.compiler.analyses.memory.arithmetic import Arithmetic
from tunec.schemas.models.architecture import Stack

_INDEX: Final = 8
"""Bytes of torch's int64."""
_WHERE: Final = 2
"""What `torch.where` reads or gives with a copy of it, and its gradient with what it came from."""


def bias_saved(stack: Stack, widths: Arithmetic, keys: float) -> float:
    """Bytes per token of relative positions: one contiguous bias per head and layer.

    A layer with its own table also keeps the bucket indices, for the table's gradient.

    transformers 5.23 `integrations/sdpa_attention.py`: `position_bias_mask.contiguous()`.
    """
    if not widths.biased:
        return 0
    places = _INDEX * keys if widths.own_biases and widths.trained else 0
    return widths.compute * stack.heads * keys + places


def masked_biases(stack: Stack, widths: Arithmetic, keys: float, *, padded: bool) -> float:
    """Bytes per token that masks in biases add to a layer, besides `bias_saved`.

    The decoder puts the encoder's mask into its bias of zeros, head by head, in each layer. If
    there is no padding, a decoder's layer makes its own causal mask, which a trained bias keeps;
    eager attention is given one.
    """
    crosses = (padded or widths.own_biases) and stack.cross_attention > 0
    zeros = widths.compute * stack.heads * keys if crosses else 0
    causal = stack.causal and widths.trained and not (padded or widths.eager)
    return zeros + causal * keys


def crossing_bias(last: Stack, widths: Arithmetic, keys: float) -> float:
    """Bytes per token of T5's bias of zeros for the encoder's keys.

    If layers are recomputed it requires a gradient, as no operation's result: it stays, with that
    gradient, to the end of the backward pass (transformers 5.23 `models/t5/modeling_t5.py`,
    `T5Attention.forward`: `position_bias.requires_grad = True`).
    """
    return widths.compute * last.heads * keys if widths.biased and last.cross_attention else 0


def position_biases(
    last: Stack, widths: Arithmetic, keys: float, *, checkpointed: bool, padded: bool
) -> float:
    """Bytes per token of one sample of T5's biases, which all layers and samples share.

    The decoder has a bias of zeros for the encoder's keys, unless each layer adds a mask to it. If
    layers are recomputed, the biases of both halves are kept as well, in the dtype of their table;
    otherwise a trained table keeps the indices that were looked up in it (traced).
    """
    if not widths.biased:
        return 0
    apart = not checkpointed and (padded or widths.own_biases)
    size = 0 if apart else crossing_bias(last, widths, keys)
    if checkpointed:
        return size + 2 * widths.held * last.heads * keys
    return size + 2 * _INDEX * keys * widths.trained


def crossing_working(stack: Stack, widths: Arithmetic, keys: float, *, recomputed: bool) -> float:
    """Bytes per token beyond the kept ones while the attention across is differentiated.

    The bias of zeros then has a gradient for each sample, and the mask in it takes one more; the
    bias itself, which the kernel read, is gone. Nothing asks for it where layers are kept.
    """
    crosses = widths.biased and stack.cross_attention > 0
    return widths.compute * stack.heads * keys if crosses and recomputed else 0


def biases_working(stack: Stack, widths: Arithmetic, keys: float, *, padded: bool) -> float:
    """Bytes per token beyond the kept ones while self-attention's trained bias is differentiated.

    Autocast's cast of it is undone first. By then the layer's own bias is gone, and so is that of
    the attention across.
    """
    if not widths.biased or not widths.trained:
        return 0
    crosses = stack.cross_attention > 0
    masked = padded or stack.causal
    apart = widths.compute + (widths.held if widths.held > widths.compute else 0)
    gradients = _WHERE * widths.held if masked else apart
    gone = widths.compute * (1 + (crosses and (padded or widths.own_biases)))
    return (gradients - gone) * stack.heads * keys


def biases_passing(stack: Stack, widths: Arithmetic, keys: float) -> float:
    """Bytes per token while self-attention's bias is made for one layer.

    Evaluation needs it too, but nothing of what training keeps beside it.
    """
    return _WHERE * widths.held * stack.heads * keys if widths.biased else 0


def shared_gradients(last: Stack, widths: Arithmetic, keys: float) -> float:
    """Bytes per token of one sample: gradients, in the last layers, of biases that layers share.

    One is the newest sum over a batch; a trained bias of self-attention also has what the layers
    before have given. The one of the bias of zeros stays longer, and is not counted here.
    """
    newest = widths.held if widths.trained else widths.compute
    return (newest + widths.held * widths.trained) * last.heads * keys
