"""The tensors that attention keeps for its backward pass, in bytes per token and layer."""

from typing import Final

from tunec.compiler.analyses.memory.arithmetic import Arithmetic
from tunec.compiler.analyses.memory.position_biases import bias_saved, masked_biases
from tunec.schemas.models.architecture import LatentAttention, Stack

_FP32: Final = 4
_WIDEST_GROUPED: Final = 256
"""The widest heads whose keys and values are not repeated (transformers 5.23
`integrations/sdpa_attention.py`, `use_gqa_in_sdpa`)."""


def attention_saved(stack: Stack, widths: Arithmetic, keys: float) -> float:
    """Bytes per token that one layer's attention keeps, without the normed hidden state.

    `keys`: the number of tokens that each query is compared with.
    """
    saved = kernel_saved(stack, widths) + norms_saved(stack, widths) + copies_saved(stack, widths)
    across = widths.crosses and stack.cross_attention > 0
    if across:
        saved += kernel_saved(stack, widths)
    if not widths.eager:
        repeated = repeated_saved(stack, widths) if widths.repeats else 0
        return saved + bias_saved(stack, widths, keys) + repeated
    scores = (1 + across) * scores_saved(stack, widths, keys)
    return saved + repeated_saved(stack, widths) + scores


def kernel_saved(stack: Stack, widths: Arithmetic) -> float:
    """Bytes per token of queries, keys, values, the output, and one fp32 number per head.

    FlashAttention (arXiv 2205.14135, section 3.1); torch's memory-efficient kernel keeps the same.
    Of eager attention, a projection that keeps its input keeps the output.
    """
    query, key, value = _kernel_widths(stack)
    numbers = 0 if widths.eager else _FP32 * stack.heads
    multiplied = _FP32 if widths.wide_queries else widths.compute
    output = _output(stack) if widths.keeps_inputs or not widths.eager else 0
    return multiplied * (query + key) + widths.compute * (value + output) + numbers


def scores_saved(stack: Stack, widths: Arithmetic, keys: float) -> float:
    """Bytes per token of eager attention's scores: fp32 after the softmax, and their cast (traced).

    A cap on the scores (Gemma 2) keeps its tanh, and a floor (OPT) what it compares, both in the
    dtype of the product.
    """
    capped = widths.compute * (stack.softcap + widths.floors_scores)
    if not widths.wide_scores:
        return stack.heads * keys * (widths.compute + capped)
    cast = widths.compute if widths.compute < _FP32 else 0
    return stack.heads * keys * (_FP32 + cast + capped)


def scores_forward(widths: Arithmetic) -> int:
    """Bytes per score that eager attention needs at its softmax in a pass that keeps nothing.

    These are the scores, an fp32 copy of them in bf16, and the result (torch 2.13
    `aten/src/ATen/native/SoftMax.cpp`, `softmax`: fp16 is read as it is).
    """
    if not widths.wide_scores:
        return 2 * widths.compute
    copied = _FP32 if widths.compute < _FP32 and not widths.half else 0
    return widths.compute + copied + _FP32


def scores_working(stack: Stack, widths: Arithmetic, keys: float) -> float:
    """Bytes per token besides the kept ones while eager attention's softmax is differentiated.

    These are the softmax's gradient, the product of both, and the scores' own gradient, all in
    fp32. CUDA's kernel gives the last in fp16 if the scores are fp16 (torch 2.13
    `aten/src/ATen/native/cuda/SoftMax.cu`, `softmax_backward_cuda_out`, and `SoftMax.cpp`,
    `softmax`). By then the scores' cast is freed, and the output, keys and values, whose gradients
    are being computed, take the place of these gradients (traced).
    """
    if not widths.eager:
        return 0
    if not widths.wide_scores:
        return stack.heads * keys * 3 * widths.compute
    cast = widths.compute if widths.compute < _FP32 else 0
    result = widths.compute if widths.half else _FP32
    return stack.heads * keys * (2 * _FP32 + result - cast)


def repeated_saved(stack: Stack, widths: Arithmetic) -> float:
    """Bytes per token of keys and values repeated for each query head (transformers `repeat_kv`).

    A single key-value head is a view, which only a cast copies; latent heads are made for every
    query head anyway. Repeated values are no view any more that keeps a fused projection.
    """
    viewed = stack.kv_heads == 1 and widths.answer == widths.compute
    if viewed or stack.latent is not None or stack.kv_heads == stack.heads:
        return 0
    query, key, value = _kernel_widths(stack)
    more = query - key + _output(stack) - value
    return widths.compute * (more - _fused_saved(stack, widths))


def mask_saved(stack: Stack, widths: Arithmetic, keys: float, *, padded: bool) -> float:
    """Extra bytes per token that sdpa keeps in layers with a mask, averaged over the layers.

    transformers 5.23 `integrations/sdpa_attention.py` repeats keys and values as soon as there is a
    mask, and torch converts the boolean mask to the queries' dtype in each layer
    (`aten/src/ATen/native/transformers/attention.cpp`, `convert_boolean_attn_mask`; traced). The
    kernel that takes a mask returns its result in token order. A decoder that reads an encoder has
    two masks: its own and the encoder's.
    """
    # such heads were measured in the kernel that repeats, without a mask too
    wide = bool(stack.measured) and stack.head_dim > _WIDEST_GROUPED
    repeated = 0.0 if widths.repeats or wide else repeated_saved(stack, widths)
    ordered = 0 if wide else widths.compute * _ordered(stack, widths)
    masks = 2 if padded and widths.crosses and stack.cross_attention > 0 else 1
    bias = 0 if widths.shares_mask or widths.biased else masks * widths.compute * keys
    share = 1 if padded else is_windowed(stack, widths, keys) * stack.windowed_layers / stack.layers
    masked = masked_biases(stack, widths, keys, padded=padded) if widths.biased else 0
    return share * (repeated + bias - ordered) + masked


def masks_kept(stack: Stack, widths: Arithmetic, keys: float, *, padded: bool) -> float:
    """Bytes per token of the masks that layers share: one of all tokens, and one of a window.

    An encoder and a decoder have one each.
    Eager attention adds a mask in the model's dtype, padded or not (transformers 5.23
    `masking_utils.py`, `eager_mask`; traced).
    """
    if widths.eager:
        return 0 if widths.biased else widths.stream * keys * (1 + (stack.windowed_layers > 0))
    size = widths.compute if widths.shares_mask else 1
    halves = 2 if widths.crosses else 1
    return size * keys * (padded * halves + is_windowed(stack, widths, keys))


def exchanged_saved(stack: Stack, widths: Arithmetic, ranks: int) -> float:
    """Extra bytes per token that attention keeps if each rank takes some heads of a sequence.

    The output comes back in a separate tensor, which a trained output projection reads. If there
    are fewer key-value heads than ranks, the heads are repeated (deepspeed 0.18.9 to 0.19.8
    `ulysses_sp.py`, `UlyssesSPAttentionHF`; traced).
    """
    returned = _output(stack) - _ordered(stack, widths) if widths.trained else 0
    repeated = max(ranks / stack.kv_heads, 1) - 1
    return widths.compute * (returned + 2 * repeated * stack.kv_heads * stack.head_dim)


def is_windowed(stack: Stack, widths: Arithmetic, keys: float) -> bool:
    """Whether a window excludes some of the tokens, so that sdpa needs a mask.

    transformers 5.23 `masking_utils.py`, `_ignore_causal_mask_sdpa`.
    """
    narrow = stack.window is not None and keys >= stack.window
    return widths.masks and narrow and stack.windowed_layers > 0


def norms_saved(stack: Stack, widths: Arithmetic) -> float:
    """Bytes per token of norms on queries and keys, or on latent queries and keys.

    Each norm keeps its input in fp32, and the normed value for its weight's gradient, in the dtype
    of the projection that it reads. The output of a latent norm is also the input of the next
    projection.
    """
    kept = _FP32 if widths.norm == "wide" else widths.answer
    normed = kept if widths.trained else 0
    if stack.latent is not None:
        read = widths.compute if widths.trained else 0
        rank = stack.latent.query_rank + stack.latent.key_value_rank
        return rank * (_FP32 + normed + read)
    if not stack.qk_norm:
        return 0
    if widths.liger_norms:
        return (stack.heads + stack.kv_heads) * stack.head_dim * widths.compute
    return (stack.heads + stack.kv_heads) * stack.head_dim * (_FP32 + normed)


def copies_saved(stack: Stack, widths: Arithmetic) -> float:
    """Bytes per token of tensors that exist only because of the memory layout (traced).

    If queries and keys are rotated out of one fused projection, the values are a view that keeps
    all of it alive, unless the kernel gets a cast of them. If they are concatenated head by head,
    the trained output projection keeps a copy of the attention's output in token order.
    """
    if stack.latent is not None or widths.rotary == "none":
        return 0
    return widths.compute * (_fused_saved(stack, widths) + _ordered(stack, widths))


def _fused_saved(stack: Stack, widths: Arithmetic) -> int:
    """Elements per token of a fused projection beside the values, which are a view of it."""
    viewed = widths.fused_qkv and widths.answer == widths.compute and widths.rotary != "none"
    return (stack.heads + stack.kv_heads) * stack.head_dim if viewed else 0


def _ordered(stack: Stack, widths: Arithmetic) -> int:
    """Elements per token of the copy of attention's output in token order; 0 without a copy.

    Eager attention gives a product that nothing keeps, of which the copy is counted as the output.
    """
    whole = stack.latent is not None or widths.eager
    copied = widths.rotary == "concatenated" and widths.trained and not whole
    return _output(stack) if copied else 0


def _kernel_widths(stack: Stack) -> tuple[int, int, int]:
    """Elements per token of queries, keys and values as the kernel receives them."""
    if stack.latent is not None:
        return _latent_widths(stack, stack.latent)
    keys = stack.kv_heads * stack.head_dim
    return stack.heads * stack.head_dim, keys, keys


def _latent_widths(stack: Stack, latent: LatentAttention) -> tuple[int, int, int]:
    """Latent attention multiplies keys and values out for every head (arXiv 2405.04434, 2.1).

    The values are a view of one product with the keys' unrotated part (traced).
    """
    key = stack.heads * (latent.nope_head_dim + latent.rope_head_dim)
    return key, key, stack.heads * (latent.nope_head_dim + latent.value_head_dim)


def _output(stack: Stack) -> int:
    """Elements a token of the attention's output."""
    if stack.latent is not None:
        return stack.heads * stack.latent.value_head_dim
    return stack.heads * stack.head_dim
