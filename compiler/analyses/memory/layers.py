"""The tensors that one transformer layer keeps, and the working memory of its backward pass.

All figures are bytes per token. Traced with transformers 5.23 and torch 2.13 (eager modules, no
fused kernels); with h, a, k, d, f for hidden width, heads, key-value heads, head width and inner
width, a gated RMSNorm layer in bf16 keeps 16h + 4ad + 4kd + 4a + 8f when it is trained and 8h + 4ad
+ 4kd + 4a + 6f when only gradients pass through it.
"""

from collections.abc import Sequence
from typing import Final

from tunec.compiler.analyses.memory.arithmetic import Arithmetic
from tunec.compiler.analyses.memory.attention import attention_saved, scores_forward
from tunec.compiler.analyses.memory.experts import experts_backward, experts_forward, experts_saved
from tunec.compiler.analyses.memory.modules import (
    Activation,
    drops_embedding,
    is_embedding_norm,
    is_encoder_norm,
    is_position_table,
)
from tunec.schemas.models.architecture import Architecture, Part, Stack

_SCALED: Final = frozenset({"granite", "granitemoe"})
"""Families that multiply what the embedding gives (transformers 5.23
`models/granite/modeling_granite.py`, `GraniteModel.forward`: `embedding_multiplier`)."""
_FP32: Final = 4
_MASK: Final = 1
"""Bytes an element of what was drawn (torch 2.13 `aten/src/ATen/native/cuda/Dropout.cu`,
`native_dropout_cuda`: a mask of booleans)."""


def inputs_waiting(stacks: Sequence[Stack], widths: Arithmetic, *, nested: bool) -> float:
    """Bytes per token of the inputs kept for one recomputed layer, on average.

    `nested`: also the input of each attention in the layer, in the dtype of the norm's output.
    """
    read = float(widths.stream * stacks[0].hidden * stacks[0].streams)
    if not nested:
        return read
    width = _FP32 if gives_fp32(stacks[0], widths) else widths.stream
    attentions = sum(
        each.layers * (1 + (widths.crosses and each.cross_attention > 0)) for each in stacks
    )
    return read + width * stacks[0].hidden * attentions / sum(each.layers for each in stacks)


def dropped_saved(
    model: Architecture, part: Part, stack: Stack, widths: Arithmetic, keys: float
) -> float:
    """Masks, and results that are read again where what was dropped is read as well.

    A dropped sum goes into the residual stream and is not read again. Attention's weights are in
    eager attention alone: kernels draw theirs anew. What the next product reads is the dropped
    result; what lies before it stays only if its own backward pass reads it: a softmax in the dtype
    of the products, a ReLU (T5 without gate) whose result a trained product reads dropped. For the
    embedding's see `embedding_saved`. Traced with transformers 5.23, GPT-2, OPT, BERT, BART, T5 and
    others.
    """
    drops = model.dropout
    if part != "text" or not (drops.states or drops.scores or drops.inner):
        return 0
    attentions = 1 + (widths.crosses and stack.cross_attention > 0)
    size = 0.0
    if drops.states:
        size += _MASK * stack.hidden * (1 + attentions)
    if drops.inner:
        again = widths.activation == "relu" and widths.keeps_inputs and not widths.copies_inner
        size += stack.ffn * (_MASK + again * widths.compute)
    if drops.scores and widths.eager:
        cast = widths.wide_scores and widths.compute < _FP32
        kept = 0 if cast else widths.compute
        size += attentions * stack.heads * keys * (_MASK + kept)
    return size


def embedding_saved(
    model: Architecture, widths: Arithmetic, *, required: bool, pictured: bool
) -> float:
    """Bytes a token that is kept before the first layer, besides what that layer reads.

    `required`: peft has made the embedding's result require a gradient, so that the graph holds it
    (torch `csrc/autograd/functions/accumulate_grad.h`, `AccumulateGrad::variable`), be it what the
    first layer reads or not: positions are added, a factor, a norm or a dropout follows, or tokens
    are replaced by pictures in a copy (`pictured`). What a norm there reads stays as well, and what
    is drawn. Encoder and decoder each embed their own tokens (transformers 5.23
    `modeling_utils.py`, `enable_input_require_grads`, which asks every half).
    """
    if not widths.trained and not required:
        return 0
    hidden, drops = model.hidden, drops_embedding(model)
    norms = any(is_embedding_norm(each) for each in model.modules)
    size = hidden * (drops * _MASK + norms * (_FP32 if widths.autocast else widths.held))
    halves = 2 if widths.crosses else 1
    placed = any(is_position_table(model, each) for each in model.modules)
    changed = pictured or norms or drops or placed or model.family in _SCALED
    return halves * (size + (widths.held * hidden if required and changed else 0))


ACTIVATION_TENSORS: Final[dict[Activation, int]] = {
    "single": 1,
    "own": 1,
    "relu": 1,
    "quick": 2,
    "expanded": 4,
}
"""Tensors of the inner width that a plain feed-forward's activation keeps."""


def layer_saved(stack: Stack, widths: Arithmetic, keys: float) -> float:
    """Bytes per token that one layer keeps, without adapters.

    `keys`: the number of tokens that each query is compared with.
    """
    shared = widths.shares_norm_inputs and stack.norms > 1 and not widths.casts_norms_apart
    inputs = stack.norms - shared
    saved = (
        inputs * norm_saved(stack, widths)
        + inputs_saved(stack, widths)
        + attention_saved(stack, widths, keys)
        + feed_forward_saved(stack, widths)
    )
    return saved + (experts_saved(stack, stack.experts, widths) if stack.experts else 0)


def norm_working(stack: Stack, widths: Arithmetic) -> float:
    """Bytes per token while the first norm of a layer is differentiated, the layer's last step.

    Its input and the gradient of the residual stream; an RMSNorm that is no kernel of its own has
    six fp32 tensors besides (traced with torch 2.13), another norm the gradient of its result.
    """
    eager = stack.norm == "rms" and not widths.liger_norms
    return (2 * widths.stream + (6 * _FP32 if eager else widths.stream)) * stack.hidden


def norm_saved(stack: Stack, widths: Arithmetic) -> float:
    """Bytes per token that one norm keeps.

    RMSNorm computes in fp32 and keeps the fp32 copy of its input, and the normed value for its
    weight's gradient; Liger's RMSNorm keeps only its input. torch's LayerNorm keeps its input,
    which autocast converts to fp32. Cohere's norm keeps the centred values twice, and the normed
    ones for its weight. T5's norm squares the fp32 copy and multiplies the input itself; in fp32
    both are one tensor.
    """
    if widths.norm == "centred":
        return _FP32 * (3 if widths.trained else 2) * stack.hidden
    if stack.norm == "rms" and widths.liger_norms:
        return widths.stream * stack.hidden
    if stack.norm == "rms":
        itself = widths.stream if widths.norm == "double" and widths.stream < _FP32 else 0
        return (itself + _FP32 + (widths.normed if widths.trained else 0)) * stack.hidden
    upcast = widths.autocast or widths.norm == "upcast"
    return (_FP32 if upcast else widths.stream) * stack.hidden


def inputs_saved(stack: Stack, widths: Arithmetic) -> float:
    """Bytes per token of normed hidden states that are kept by the products which read them.

    Under autocast each reading layer keeps a separate cast if norms give fp32, that is, over an
    fp32 stream or with torch's LayerNorm.
    """
    if not widths.keeps_inputs:
        return 0
    normed = 3 if widths.crosses and stack.cross_attention else 2
    casts = widths.casts or gives_fp32(stack, widths)
    copies = widths.readers if casts else min(stack.norms, normed)
    return widths.compute * stack.hidden * copies


def gives_fp32(stack: Stack, widths: Arithmetic) -> bool:
    """Whether norms return fp32, as torch's LayerNorm does under autocast."""
    return widths.autocast and stack.norm == "layer" and widths.norm == "plain"


def final_input_saved(stack: Stack, widths: Arithmetic) -> float:
    """Bytes per token of the final norm's output, which the head reads."""
    return widths.compute * stack.hidden


def masked_head_saved(
    model: Architecture, stack: Stack, widths: Arithmetic, *, read: bool
) -> float:
    """Bytes per token of the product that a masked-language head has before its norm.

    Its input, if that is `read` again, and what it gives, which the activation behind it reads
    (transformers 5.23 `models/bert/modeling_bert.py`, `BertPredictionHeadTransform`;
    `models/roberta/modeling_roberta.py`, `RobertaLMHead`).
    """
    is_masked = model.kind == "encoder" and bool(model.head)
    return is_masked * (1 + read) * widths.compute * stack.hidden


def encoder_end_saved(
    model: Architecture, encoder: Stack, widths: Arithmetic, *, adapted: bool, checkpointed: bool
) -> float:
    """Bytes per token of the norm after an encoder, and of its result, which decoder layers read.

    `adapted`: whether adapters read the result. Products and adapters that cast it keep their own
    casts; layers that are recomputed keep it as it is, since it is one of their inputs
    (torch 2.13 `utils/checkpoint.py`, `_checkpoint_without_reentrant_generator`).
    """
    cast = widths.casts or gives_fp32(encoder, widths)
    read = (widths.keeps_inputs and not cast) or (adapted and widths.adapters_share_inputs)
    result = read * final_input_saved(encoder, widths)
    if checkpointed:
        result = (_FP32 if gives_fp32(encoder, widths) else widths.stream) * encoder.hidden
    if not any(map(is_encoder_norm, model.modules)):
        return result * checkpointed
    return norm_saved(encoder, widths) + result + ending_dropped(model, encoder, widths)


def ending_dropped(model: Architecture, stack: Stack, widths: Arithmetic) -> float:
    """Bytes per token of the mask by which T5 drops what the norm behind its layers gives.

    transformers 5.23 `models/t5/modeling_t5.py`, `T5Stack.forward`, for encoder and decoder.
    """
    return _MASK * stack.hidden * (model.dropout.states and widths.biased)


def feed_forward_saved(stack: Stack, widths: Arithmetic) -> float:
    """Bytes per token that the dense feed-forward keeps.

    A gated one keeps gate, activation, up, and their product for the down projection's weight; with
    Liger's kernel no activation. A plain one keeps the activation's tensors, and its output for the
    second weight; a ReLU keeps this output anyway, unless it is copied.
    """
    kept, result = _activation_saved(widths)
    read = widths.keeps_inputs * widths.compute
    if stack.gated:
        return stack.ffn * (kept + result + widths.answer + read)
    shared = widths.activation == "relu" and not widths.copies_inner
    return stack.ffn * (kept + (0 if shared else read))


def _activation_saved(widths: Arithmetic) -> tuple[int, int]:
    """Bytes per element that the activation keeps, and bytes per element of its result.

    Autocast computes every power in fp32 (torch 2.13 `aten/src/ATen/autocast_mode.h`,
    `AT_FORALL_FP32`), so that a GELU written out is in fp32 except for half its input.
    """
    tensors = 0 if widths.liger_products else ACTIVATION_TENSORS[widths.activation]
    if _widens_inside(widths):
        return (tensors - 1) * _FP32 + widths.answer, _FP32
    return tensors * widths.answer, widths.answer


def _widens_inside(widths: Arithmetic) -> bool:
    return widths.activation == "expanded" and widths.autocast


def layer_working(stack: Stack, widths: Arithmetic, *, recomputed: bool = False) -> float:
    """Bytes per token of temporary gradients while one layer is differentiated.

    Traced for gated layers: 4f + 2h in bf16 when trained, or with 16-bit adapters; for other
    adapters see `_beside_adapters`. If no adapter reads the product of gate and up, the product is
    not kept, and its gradient comes beside the gradients of both.
    """
    if stack.experts is not None and stack.ffn == 0:
        course = experts_backward(stack, stack.experts, widths, recomputed=recomputed)
        return course.beginning
    width = _FP32 if _widens_inside(widths) else widths.compute
    inner = width * stack.ffn * _inner(stack, widths)
    if widths.activation == "own":
        inner = (_OF_OWN * widths.answer - widths.compute) * stack.ffn
    if widths.trained:
        return inner + widths.stream * stack.hidden
    if widths.fused_gate and widths.adapter_product == _FP32:
        return 10 * stack.ffn + 8 * stack.hidden
    if not stack.gated:
        # what the layer keeps of its hidden width is gone by the time of a GELU's own backward pass
        begun = inner + (0 if widths.activation == "own" else 11 * stack.hidden)
        if recomputed:
            return max(begun, _beside_adapters(stack, widths))
        # both gradients of what the second product read, and their sum (traced)
        wide = widths.answer > widths.compute and widths.reads_product
        if wide:
            return max(begun, 10 * stack.ffn + 6 * stack.hidden)
        return max(begun, _inside_widened(stack, widths))
    if not widths.reads_product:
        gradients = 1 if widths.liger_products else 3
        return gradients * widths.answer * stack.ffn + widths.stream * stack.hidden
    if widths.adapters_share_inputs:
        # the adapter of a fused gate and up scales its product beside what the layer will add
        beside = 3 if recomputed and widths.fused_gate else 1
        return inner + beside * widths.stream * stack.hidden
    return _beside_adapters(stack, widths) if recomputed else inner + 11 * stack.hidden


def _inside_widened(stack: Stack, widths: Arithmetic) -> float:
    """Bytes per token while a GELU that autocast computes in fp32 is differentiated; else 0.

    Three gradients in fp32 and the one that came, for which an adapter's cast has gone (traced).
    """
    if not _widens_inside(widths):
        return 0.0
    came = 0 if widths.reads_product else widths.compute
    return (3 * _FP32 + came) * stack.ffn + widths.stream * stack.hidden


def _beside_adapters(stack: Stack, widths: Arithmetic) -> float:
    """Bytes per token of `layer_working` with fp32 adapters, recomputed; bf16 unless k-bit.

    The highest moment is the end of the recomputation: the down projection's adapter casts the
    product to fp32, and drops part of the cast, beside the product itself, which a ReLU keeps
    anyway. Without autocast the cast is kept; with autocast, the output of torch's LayerNorm is in
    fp32. In k-bit training the product is in fp32, and its two gradients and their sum may be more
    (traced with peft 0.21.2).
    """
    if widths.adapter_product == _FP32:
        dropping = 2 * (stack.ffn + stack.hidden) if widths.drops else 0
        return 4 * stack.ffn + 12 * stack.hidden + dropping
    if widths.answer == _FP32:
        ending = (8 if widths.drops else 4) * stack.ffn + 10 * stack.hidden
        return max(10 * stack.ffn, ending)
    hidden = 12 if gives_fp32(stack, widths) and widths.stream < _FP32 else 10
    inner = (10 if widths.drops else 6) - 2 * (widths.activation == "relu")
    return inner * stack.ffn + hidden * stack.hidden


def ending_working(stack: Stack, widths: Arithmetic, *, after: bool, drops: bool) -> float:
    """Bytes per token besides the kept ones at the end of a layer's forward pass.

    They matter after a last adapter has run, unless adapters read the product as it is, or keep
    their own cast of it. No gradient exists yet. The embedding and residual of a 16-bit stream are
    not among the kept tensors, which have fp32 copies.

    `after`: whether layers normalise what attention and feed-forward give. Autocast then has four
    fp32 tensors that products read in 16 bits: the embedding, the layer's input, attention's norm,
    and the last norm, before which the sum is kept with what was dropped (`drops`). Traced.
    """
    after = after and widths.stream == _FP32 > widths.compute
    if widths.trained:
        return after * (4 * _FP32 + widths.answer) * stack.hidden
    as_it_is = widths.adapter == widths.answer or not widths.autocast
    if not widths.reads_product or as_it_is or stack.ffn == 0:
        return 0
    held = 2 * widths.stream if widths.stream < _FP32 else -widths.stream
    held = _FP32 - drops * _MASK if after else held
    return _beside_adapters(stack, widths) + held * stack.hidden


def expanding_working(stack: Stack, widths: Arithmetic) -> float:
    """Bytes per token while the down projection's quantized weight is dequantized (traced)."""
    own = 1 if widths.reads_product else 2
    return own * widths.answer * stack.ffn + 8 * stack.hidden


def reentrant_working(stack: Stack, widths: Arithmetic) -> float:
    """Bytes per token that torch's reentrant variant adds to `layer_working`.

    It recomputes a layer before the gradient passes any of it, and holds the layer's new output
    (torch 2.13 `utils/checkpoint.py`, `CheckpointFunction.backward`). The other variant begins when
    the layer's last adapter asks for its saved tensors: by then the scaled gradient exists in the
    adapter's dtype. Traced: with fp32 adapters 4h less, under autocast 2h more.
    """
    if widths.trained:
        return 0
    return -_FP32 * stack.hidden if widths.adapter_product == _FP32 else 2 * stack.hidden


_OF_OWN: Final = 6
"""Tensors of the inner width in which a GELU's own backward pass works, when what the second
product read is gone (traced)."""


def _inner(stack: Stack, widths: Arithmetic) -> int:
    """Number of gradients of the inner width that are alive together, besides kept tensors."""
    if stack.gated and widths.liger_products:
        return 1
    return 2 if stack.gated or widths.activation == "expanded" else 1


def forward_working(stack: Stack, widths: Arithmetic, keys: float) -> float:
    """Bytes per token that one layer needs temporarily when nothing is kept.

    The model holds the embedding's output and the layer's input, and the layer holds its residual
    and its norm's output; to these comes the larger of attention's and the feed-forward's tensors
    (traced: `tests/analyses/memory/test_generation.py`).
    """
    made = max(widths.compute, widths.answer)
    attention = float(made * (2 * stack.heads + 2 * stack.kv_heads) * stack.head_dim)
    if widths.eager:
        attention += scores_forward(widths) * stack.heads * keys
    feed_forward: float = made * stack.ffn * (3 if stack.gated else 2)
    if stack.experts is not None:
        feed_forward = max(feed_forward, experts_forward(stack, stack.experts, widths))
    around = (2 * widths.stream + made) * stack.hidden
    return around + max(attention, feed_forward + widths.stream * stack.hidden)
