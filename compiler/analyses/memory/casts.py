"""16-bit copies of fp32 weights that autocast makes, in bytes."""

from tunec.compiler.analyses.memory.arithmetic import Arithmetic
from tunec.compiler.analyses.memory.counts import Counts
from tunec.compiler.analyses.memory.timeline import Sizes


def forward_casts(counts: Counts, widths: Arithmetic, *, checkpointed: bool, head: bool) -> Sizes:
    """Copies alive at the end of a forward pass.

    Autocast caches the copy of a weight that gets gradients until the context ends (torch
    `aten/src/ATen/autocast_mode.cpp`, `cached_cast`); a frozen weight's copy is kept by each
    product whose input needs a gradient, which checkpointing undoes for all but the head. `head`:
    whether the output projection is one product; a loss in pieces casts it for itself.
    """
    if not widths.casts:
        return {}
    frozen = counts.output_frozen if checkpointed else counts.multiplied_frozen
    every = counts.multiplied + frozen - (0 if head else counts.output)
    return {"autocast weight copies": float(widths.compute * every)}


def evaluation_casts(counts: Counts, widths: Arithmetic) -> Sizes:
    """Copies alive at the end of a pass that keeps nothing: those of weights that are trained."""
    return {"autocast weight copies": float(widths.compute * counts.multiplied * widths.casts)}


def head_cast(counts: Counts, widths: Arithmetic) -> Sizes:
    """The copy of a frozen output projection, which is not kept; none of one that is trained."""
    return {"output projection cast": float(widths.compute * counts.output_frozen * widths.casts)}


def backward_casts(counts: Counts, widths: Arithmetic, *, checkpointed: bool, head: bool) -> Sizes:
    """Copies that the graph keeps when the backward pass starts; with checkpointing the head's."""
    if not widths.casts:
        return {}
    if checkpointed:
        return {"autocast weight copies": float(widths.compute * counts.output * head)}
    whole = counts.multiplied + counts.multiplied_frozen - (0 if head else counts.output)
    return {"autocast weight copies": float(widths.compute * whole)}
