"""Bytes that FSDP's ranks exchange for parameters and gradients."""

from tunec.compiler.analyses.memory.counts import count
from tunec.compiler.analyses.memory.terms.fsdp_units import gradient_width, units_of
from tunec.compiler.analyses.memory.workload import Layout, Workload


def gathered_bytes(workload: Workload, layout: Layout) -> float:
    """Bytes that a ring carries for parameters in one optimizer step.

    Every unit is gathered forward and backward in every micro batch; units that stay whole in
    between are gathered once.
    """
    units = units_of(workload, layout.fsdp, layout.states)
    if layout.fsdp.sharding == "none":
        return 0.0
    twice = 1 if layout.fsdp.sharding == "grad_op" else 2
    ends = units.root.size + units.tail.size
    return (twice * (units.every.size - ends) + ends) * layout.batch.accumulation


def reduced_bytes(workload: Workload, layout: Layout) -> float:
    """Bytes that a ring carries for gradients: once a step, however many micro batches there are.

    accelerate 1.15 `Accelerator.no_sync`; unsharded, all ranks get all of them.
    """
    width = gradient_width(workload, layout.states)
    return width * count(workload).trainable * (2 if layout.fsdp.sharding == "none" else 1)


def replicated_bytes(workload: Workload, layout: Layout) -> float:
    """Bytes of a rank's reduced gradients that nodes exchange if each node holds a whole model."""
    if layout.fsdp.sharding != "hybrid":
        return 0.0
    inside = max(layout.parallel.data // layout.nodes, 1)
    return 2 * gradient_width(workload, layout.states) * count(workload).trainable / inside
