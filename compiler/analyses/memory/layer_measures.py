"""The bytes of a layer: as measured on the real class, or by formulas."""

from collections.abc import Callable, Sequence
from typing import Final

from tunec.compiler.analyses.memory.arithmetic import Arithmetic
from tunec.compiler.analyses.memory.attention import attention_saved, scores_working
from tunec.compiler.analyses.memory.experts import experts_saved
from tunec.compiler.analyses.memory.layers import (
    ending_working,
    feed_forward_saved,
    gives_fp32,
    layer_saved,
    layer_working,
    norm_saved,
)
from tunec.compiler.analyses.memory.modules import BYTES, norms_after
from tunec.compiler.analyses.memory.position_biases import (
    biases_passing,
    biases_working,
    crossing_working,
)
from tunec.compiler.analyses.memory.timeline import Sizes
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Architecture, Stack
from tunec.schemas.models.layer_measures import ALONE, Measured, find, highest

_EAGER = " eager"
_RETURNS_ALL: Final = frozenset({"deberta", "deberta-v2"})
"""Families whose body always has its encoder return what every layer gave (transformers 5.23
`models/deberta_v2/modeling_deberta_v2.py`, `DebertaV2Model.forward`: `output_hidden_states`)."""


def saved(stack: Stack, widths: Arithmetic, keys: float, *, alone: bool) -> float:
    """Bytes per token that one layer keeps, without adapters; `keys`: tokens of a sample.

    `alone`: whether there is only one sample.
    """
    found = _found(stack.measured, widths, alone=alone)
    if found is None:
        return layer_saved(stack, widths, keys)
    own = highest(found.saved, keys) - highest(found.common, keys)
    return own + _other_kernel(found, stack, widths, keys) + _of_adapted_experts(stack, widths)


def common(stack: Stack, widths: Arithmetic, keys: float) -> float:
    """Bytes per token of one sample that a layer keeps once for all samples of a batch."""
    found = _found(stack.measured, widths)
    return 0.0 if found is None else highest(found.common, keys)


def working(
    stack: Stack, widths: Arithmetic, keys: float, *, recomputed: bool, alone: bool
) -> float:
    """Bytes per token of gradients in flight while one layer is differentiated.

    The measure does not include adapters, whose casts the formula adds beside the widest product.
    """
    formula = layer_working(stack, widths, recomputed=recomputed)
    found = _found(stack.measured, widths, alone=alone)
    if found is None:
        return formula
    measured = highest(found.working, keys)
    if recomputed:
        # the layer runs forward again while the gradient of its output waits
        again = highest(found.forward, keys) - highest(found.saved, keys)
        measured = max(measured, again + widths.stream * stack.hidden * stack.streams)
    return measured if widths.trained else max(measured, formula)


def feed_forward_kept(stack: Stack, widths: Arithmetic) -> float:
    """Bytes per token that a layer's feed-forward keeps, and that its differentiation releases."""
    experts = experts_saved(stack, stack.experts, widths) if stack.experts else 0
    return feed_forward_saved(stack, widths) + experts


def _at_scores(
    stack: Stack, widths: Arithmetic, keys: float, *, recomputed: bool, padded: bool
) -> float:
    """Bytes per token that scores or their biases need beyond those released before them."""
    done = feed_forward_kept(stack, widths) + norm_saved(stack, widths)
    if widths.eager:
        return scores_working(stack, widths, keys) - done
    crossing = crossing_working(stack, widths, keys, recomputed=recomputed)
    return max(crossing, biases_working(stack, widths, keys, padded=padded)) - done


def working_of(
    stacks: Sequence[Stack],
    widths: Arithmetic,
    keys: float,
    kept: Sequence[float],
    adapters: Callable[[], float],
    *,
    recomputed: bool,
    padded: bool,
    alone: bool,
) -> float:
    """Bytes per token that differentiating a layer needs, beyond those of the one that keeps most.

    `kept`: bytes that a layer of each stack keeps; `adapters`: those that adapters release before
    its attention is differentiated.
    """
    found = max(working(s, widths, keys, recomputed=recomputed, alone=alone) for s in stacks)
    if stacks[0].measured or not (widths.eager or widths.biased):
        return found
    most, gone = max(kept), adapters()
    for stack, size in zip(stacks, kept, strict=True):
        needed = _at_scores(stack, widths, keys, recomputed=recomputed, padded=padded)
        found = max(found, size + needed - most - gone)
    return found


def passing(
    model: Architecture,
    stacks: Sequence[Stack],
    widths: Arithmetic,
    keys: float,
    *,
    alone: bool,
    recomputed: bool,
) -> Sizes:
    """Bytes per token that a last layer's forward pass needs besides what all layers keep.

    It is highest when the layer's last adapter or norm has run, or inside of the layer as measured:
    then what the embedding gave still waits, which the measure counts among what is around the
    layers. Recomputed layers need as much when they run again, where a bias of relative positions
    is no larger than when it was made.
    """
    last = stacks[-1]
    if recomputed:
        made = biases_passing(last, widths, keys)
        return {"position biases": made} if made else {}
    after = norms_after(model, last.part)
    casts = ending_working(last, widths, after=after, drops=model.dropout.states)
    height = _height(last, widths, keys, alone=alone)
    height += (around(model, widths, keys, alone=alone) or 0.0) if height else 0.0
    if model.family in _RETURNS_ALL and gives_fp32(last, widths):
        height += BYTES["fp32"] * last.hidden * (sum(each.layers for each in stacks) - 1)
    adapted = casts >= height and not widths.trained
    name = "adapters' casts" if adapted else "last layer"
    found = _found(model.around, widths, alone=alone)
    waiting = highest(found.forward, keys) if found else 0.0
    return {name: max(casts, height) + waiting} if casts or height else {}


def _height(stack: Stack, widths: Arithmetic, keys: float, *, alone: bool) -> float:
    """Bytes per token that a measured layer's forward pass needs besides what the layer keeps."""
    found = _found(stack.measured, widths, alone=alone)
    if found is None or not found.forward:
        return 0.0
    return max(highest(found.forward, keys) - highest(found.saved, keys), 0.0)


def around(model: Architecture, widths: Arithmetic, keys: float, *, alone: bool) -> float | None:
    """Bytes per token that the model keeps outside its layers; None if formulas give them."""
    found = _found(model.around, widths, alone=alone)
    return None if found is None else highest(found.saved, keys)


def beside(model: Architecture, widths: Arithmetic, *, alone: bool) -> float:
    """Of those, bytes per sample that do not depend on the text's length: an encoder's input."""
    found = _found(model.around, widths, alone=alone) if model.source else None
    return 0.0 if found is None else max(each.sample for each in found.saved)


def _found(
    measures: tuple[Measured, ...], widths: Arithmetic, *, alone: bool = False
) -> Measured | None:
    """The measure of a way of computing, or the one with the other attention kernel.

    The measure of one sample, if there is one and it is smaller than the share of each of several.
    """
    if not measures:
        return None
    way = widths.way
    other = way.removesuffix(_EAGER) if widths.eager else way + _EAGER
    named = [each + ALONE * one for one in (alone, False) for each in (way, other)]
    return next(filter(None, (find(measures, each) for each in named)), None)


def _of_adapted_experts(stack: Stack, widths: Arithmetic) -> float:
    """What experts with adapters keep more than the frozen ones that were measured."""
    if stack.experts is None or widths.trained or not widths.trains_experts:
        return 0
    frozen = replace(widths, trains_experts=False)
    adapted, measured = (experts_saved(stack, stack.experts, each) for each in (widths, frozen))
    return adapted - measured


def _other_kernel(found: Measured, stack: Stack, widths: Arithmetic, keys: float) -> float:
    """What the running kernel keeps more than the one that was measured."""
    if found.way.removesuffix(ALONE) == widths.way or not stack.attends:
        return 0
    measured = replace(widths, eager=not widths.eager)
    return attention_saved(stack, widths, keys) - attention_saved(stack, measured, keys)
