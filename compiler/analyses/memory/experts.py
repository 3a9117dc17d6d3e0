"""What a mixture of experts keeps and works in, in bytes a token and layer.

Every token passes `active` experts, so the figures do not depend on how tokens are routed; an
imbalance costs time, not memory. Traced with transformers 5.23 `integrations/moe.py`,
`grouped_mm_experts_forward`, and for the loop over experts of releases before 5 with 4.57.6
`models/mixtral/modeling_mixtral.py`, `MixtralSparseMoeBlock`.
"""

from typing import Final

from tunec.compiler.analyses.memory.arithmetic import Arithmetic
from tunec.schemas.models.architecture import Experts, Stack

_FP32: Final = 4
_INDICES: Final = 40
"""Bytes an active expert of sorted indices and offsets: four int64 and two fp32 numbers."""


def experts_saved(stack: Stack, experts: Experts, widths: Arithmetic) -> float:
    """Bytes a token that routed and shared experts keep.

    Of each active expert gate and up, the activation and the result that the router weighs;
    trained, also the token itself and the product. The router keeps its probabilities, and may
    read the token in fp32. A loop adds each expert's weighed result to the sum by `index_add_`,
    which keeps it.
    """
    tensors = 4 if widths.trained else 3
    results = (2 if widths.trained else 1) + widths.experts_apart
    routed = widths.answer * (tensors * experts.ffn + results * stack.hidden)
    shared = widths.compute * tensors * experts.shared_ffn
    if widths.keeps_inputs and not widths.trained:
        inputs = (2 if widths.casts else 1) * stack.hidden + experts.ffn
        routed += widths.compute * inputs
    read = _FP32 * stack.hidden if widths.trained and widths.router == "double" else 0
    return experts.active * (routed + _INDICES) + shared + read + _FP32 * experts.count


def experts_working(stack: Stack, experts: Experts, widths: Arithmetic) -> float:
    """Bytes a token of gradients on their way: three copies of the weighed results, and a cast.

    With fp32 router weights the gradients of weighing are fp32 too. In a loop two of the whole
    batch, and those of one expert's share of the tokens.
    """
    if widths.experts_apart:
        share = experts.active / experts.count
        return widths.answer * (2 * stack.hidden + 1.5 * share * experts.ffn)
    if widths.router == "narrow":
        return experts.active * 3 * widths.compute * stack.hidden
    return experts.active * (3 * _FP32 + widths.compute) * stack.hidden
