"""What a mixture of experts keeps for its backward pass, and the working memory of both passes.

Every token passes a mixture's `active` experts, so that the figures do not depend on how tokens are
routed; an imbalance costs time, not memory. All figures are bytes a token. Read in transformers
5.23 `integrations/moe.py`, `grouped_mm_experts_forward`, and traced operation by operation; for the
loop over experts of releases before 5 in 4.57.6 `models/mixtral/modeling_mixtral.py`,
`MixtralSparseMoeBlock`.
"""

from typing import Final, NamedTuple

from tunec.compiler.analyses.memory.arithmetic import Arithmetic
from tunec.compiler.analyses.memory.timeline import Sizes
from tunec.schemas.models.architecture import Experts, Stack

_FP32: Final = 4
_INDICES: Final = 4 * 8
"""Bytes per active expert of int64 indices: chosen experts, tokens in order, and both orders."""


def experts_saved(stack: Stack, experts: Experts, widths: Arithmetic) -> float:
    """Bytes per token that routed and shared experts keep.

    For each active expert: gate and up, the activation and the result that the router weights; if
    it is trained, also the token itself and the product. The router keeps its probabilities, and
    may read the token in fp32. A loop adds each expert's weighted result to the sum by
    `index_add_`, which keeps it. The result of shared experts is kept if it is multiplied by a
    gate.
    """
    tensors = 4 if widths.trains_experts else 3
    results = (2 if widths.trains_experts else 1) + widths.experts_apart
    width = _width(widths)
    routed = width * (tensors * experts.ffn + results * stack.hidden)
    if widths.experts_apart and widths.keeps_inputs and not widths.trained:
        inputs = (2 if widths.casts else 1) * stack.hidden + experts.ffn
        routed += widths.compute * inputs
    weights = _weight(widths) + (_FP32 if widths.router == "wide" else 0)
    read = _FP32 * stack.hidden if widths.trained and widths.router == "double" else 0
    active = experts.active * (routed + _INDICES + weights)
    return active + _shared_saved(stack, experts, widths) + read + _FP32 * experts.count


def _shared_saved(stack: Stack, experts: Experts, widths: Arithmetic) -> float:
    """Gate, activation and up; the product if it is trained; and the result if it is gated."""
    product = widths.compute if widths.keeps_inputs else 0
    gated = widths.answer * stack.hidden if widths.gates_shared else 0
    return (3 * widths.answer + product) * experts.shared_ffn + gated * bool(experts.shared_ffn)


def _width(widths: Arithmetic) -> int:
    """Bytes per element inside routed experts.

    Autocast does not cover the grouped product: tokens are converted to the weights' dtype
    (`_grouped_mm`). It does cover the linear layers of a loop.
    """
    return widths.answer if widths.experts_apart else widths.held


def _weight(widths: Arithmetic) -> int:
    """Bytes of one router weight that multiplies a result."""
    return widths.compute if widths.router == "narrow" else _FP32


def experts_forward(stack: Stack, experts: Experts, widths: Arithmetic) -> float:
    """Working bytes per token of a block that keeps nothing, besides its input.

    The tokens in the order of their experts stay to the end; first gate and up with the activation
    and the product exist, at the end the results, and the weighted ones twice.
    """
    if widths.experts_apart:
        inner = experts.active * experts.ffn + experts.shared_ffn
        return 3 * widths.answer * inner
    width = _width(widths)
    inner = 4 * width * experts.ffn
    ending = (width + 2 * _weighed(widths)) * stack.hidden
    return experts.active * (widths.stream * stack.hidden + max(inner, ending))


def _weighed(widths: Arithmetic) -> int:
    return max(_width(widths), _weight(widths))


def experts_ending(stack: Stack, experts: Experts, widths: Arithmetic) -> float:
    """Bytes per token besides the kept ones at the end of a forward pass that keeps its tensors.

    If the weights have no gradient, the ordered tokens and the product are not kept, but still
    exist. Shared experts that run after the routed ones have kept nothing yet.
    """
    later = 0.0 if widths.gates_shared else _shared_saved(stack, experts, widths)
    if widths.experts_apart:
        return -later
    ending = 2 * _weighed(widths) * stack.hidden
    there = 0.0
    if not widths.trains_experts:
        there = widths.stream * stack.hidden
        ending = max(ending, _width(widths) * experts.ffn)
    return experts.active * (there + ending) - later


class Backward(NamedTuple):
    """Bytes per token during a block's backward pass, besides all that its layer kept."""

    beginning: float
    """Before the experts' weights have gradients."""
    inner: float
    """The results are freed; gradients of the product, of the activation and of up exist."""
    ending: float
    """Only the tokens, the gradient of gate and up, and that of the tokens are left."""


def experts_backward(
    stack: Stack, experts: Experts, widths: Arithmetic, *, recomputed: bool = False
) -> Backward:
    """Trace the course of a block's backward pass.

    Its gradient of the weighed results is made three times over: expanded, zeros, and put in order;
    then, in fp32 beside its cast, with those of both factors. Where the layer is recomputed, that
    begins when the expanded gradient is there, and ends with the weighed results, of which only the
    order is kept (torch 2.13 `utils/checkpoint.py`, `_StopRecomputationError`).
    In a loop there are two results of the whole batch, and those of one expert's share of tokens.
    """
    coming = widths.stream * stack.hidden
    if widths.experts_apart:
        share = experts.active / experts.count
        one = widths.answer * (2 * stack.hidden + 1.5 * share * experts.ffn)
        return Backward(one, one, one)
    width, weighed = _width(widths), _weighed(widths)
    around = coming + _around(stack, experts, widths)
    cast = width if weighed != width else 0
    result, inner = width * stack.hidden, width * experts.ffn
    product = inner if widths.trains_experts else 0
    weighing = around + experts.active * (3 * weighed + cast) * stack.hidden
    if widths.trains_experts and not widths.trained:
        halfway = around + experts.active * inner
    else:
        halfway = around + experts.active * max(3 * inner - product - result, product)
    ending = around - experts.active * (inner + product)
    beginning = weighing if widths.trains_experts else max(weighing, halfway)
    if recomputed and not widths.trains_experts:
        local = widths.stream * stack.hidden + max(inner, weighed * stack.hidden)
        again = around + experts.active * (local + weighed * stack.hidden)
        beginning = max(beginning, again)
    return Backward(beginning, halfway, ending)


def _around(stack: Stack, experts: Experts, widths: Arithmetic) -> float:
    """Bytes per token of shared experts' gradients that wait, less the tensors freed by then.

    Gated shared experts run first and are differentiated last: the gradients of their result and of
    the gate's input wait, and the result is freed. Others are finished, and have left the gradient
    of their input.
    """
    if not experts.shared_ffn:
        return 0.0
    if widths.gates_shared:
        return (2 * widths.stream - widths.answer) * stack.hidden
    normed = widths.compute * stack.hidden if widths.trained else 0
    return widths.stream * stack.hidden - normed - _shared_saved(stack, experts, widths)


class ExpertsPass(NamedTuple):
    """Bytes per sample at moments inside a layer's mixture of experts."""

    forward: Sizes
    """After the last layer's experts have run, besides the kept tensors."""
    repeated: Sizes
    """A layer and its input, recomputed as far as its experts."""
    beginning: Sizes
    """A layer and its input, before its experts are differentiated."""
    inner: Sizes
    """A layer and its input, when the experts' second product has its gradients."""
    ending: Sizes
    """As `inner`, when the experts have all their gradients."""


def experts_pass(
    stack: Stack, widths: Arithmetic, tokens: float, layer: float, name: str, *, recomputed: bool
) -> ExpertsPass | None:
    """Moments inside a layer's experts; None if it has none.

    `layer`: bytes per sample that a layer keeps, with its input if that waits; `name`: of the term
    while it is differentiated; `recomputed`: whether its forward pass keeps nothing.
    """
    if stack.experts is None:
        return None
    course, hidden = experts_backward(stack, stack.experts, widths), widths.stream * stack.hidden
    beginning = hidden + _around(stack, stack.experts, widths)
    if recomputed:
        # the residual and what the block reads, beside the inputs of layers
        forward = 2 * hidden + experts_forward(stack, stack.experts, widths)
    else:
        # the embedding's output, the residual, and what the block reads, which training keeps
        around = (2 if widths.trained else 3) * hidden
        forward = around + experts_ending(stack, stack.experts, widths)
    return ExpertsPass(
        {"text experts": tokens * forward},
        {name: layer + tokens * (hidden - experts_saved(stack, stack.experts, widths))},
        {name: layer + tokens * beginning},
        {name: layer + tokens * course.inner},
        {name: layer + tokens * course.ending},
    )
