"""Copies that autocast makes of weights and adapters, in bytes."""

from tunec.compiler.analyses.memory.activations import Pass
from tunec.compiler.analyses.memory.arithmetic import Arithmetic
from tunec.compiler.analyses.memory.counts import Counts
from tunec.compiler.analyses.memory.timeline import Sizes


def forward_casts(
    counts: Counts, widths: Arithmetic, run: Pass, *, checkpointed: bool, head: bool
) -> Sizes:
    """Copies alive at the end of a forward pass.

    Autocast caches the copy of a weight that gets gradients until the context ends (torch
    `aten/src/ATen/autocast_mode.cpp`, `cached_cast`); a frozen weight's copy is kept by each
    product whose input needs a gradient, which checkpointing undoes for all but the head. `head`:
    whether the output projection is one product; a loss in pieces casts it for itself.
    """
    of_adapters = adapter_casts(counts, widths, run)
    if not widths.casts:
        return of_adapters
    frozen = counts.output_frozen if checkpointed else counts.multiplied_frozen
    every = counts.multiplied + frozen - (0 if head else counts.output)
    return {"autocast weight copies": float(widths.compute * every), **of_adapters}


def adapter_casts(counts: Counts, widths: Arithmetic, run: Pass) -> Sizes:
    """Copies of adapters that are wider than the products' dtype, which autocast casts too.

    Both products of an adapter need their weight for the gradient of what they read, so that the
    graph keeps the copies of layers that are not recomputed (peft 0.21 `tuners/lora/layer.py`,
    `Linear.forward`; traced).
    """
    narrower = run.casts_adapters and widths.compute < widths.adapter
    return {"autocast adapter copies": float(widths.compute * counts.adapters * narrower)}


def evaluation_casts(counts: Counts, widths: Arithmetic, run: Pass) -> Sizes:
    """Copies of trained weights, which are alive at the end of a pass that keeps nothing."""
    of_adapters = adapter_casts(counts, widths, run)
    every = float(widths.compute * counts.multiplied * widths.casts)
    return {"autocast weight copies": every, **of_adapters}


def head_cast(counts: Counts, widths: Arithmetic) -> Sizes:
    """The temporary copy of a frozen output projection; a trained one has none."""
    return {"output projection cast": float(widths.compute * counts.output_frozen * widths.casts)}


def backward_casts(
    counts: Counts, widths: Arithmetic, run: Pass, *, checkpointed: bool, head: bool
) -> Sizes:
    """Copies that the graph keeps when the backward pass starts; with checkpointing, the head's."""
    of_adapters = {} if checkpointed else adapter_casts(counts, widths, run)
    if not widths.casts:
        return of_adapters
    if checkpointed:
        return {"autocast weight copies": float(widths.compute * counts.output * head)}
    whole = counts.multiplied + counts.multiplied_frozen - (0 if head else counts.output)
    return {"autocast weight copies": float(widths.compute * whole), **of_adapters}
