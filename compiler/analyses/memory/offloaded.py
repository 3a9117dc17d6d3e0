"""Activations that wait in host RAM, in bytes of one device's micro batch."""

from typing import NamedTuple

from tunec.compiler.analyses.memory.terms.passes import activations, pass_of
from tunec.compiler.analyses.memory.vision import image_activations
from tunec.compiler.analyses.memory.workload import Layout, Workload
from tunec.compiler.ir.caches import cached


class Moved(NamedTuple):
    """What goes to the host in a forward pass and comes back in the backward pass."""

    carried: float
    """Bytes that cross the slot, one way."""
    taken: float
    """Bytes of the buffers that hold them."""


@cached(2048)
def moved_activations(workload: Workload, layout: Layout) -> Moved:
    """What one device's micro batch moves, by the plan's own checkpointing.

    torch's allocator of pinned memory takes the next power of two for each buffer (torch 2.13
    `ATen/core/CachingHostAllocator.h`, `allocate`: `PowerOf2Ceil`), and TRL takes a buffer for each
    tensor (trl 1.16 `models/activation_offloading.py`, `use_pin_memory`). SimpleTuner's buffers are
    of the same size from 4.6 on, where they are pinned.
    """
    asked, micro = layout.activation_checkpointing, layout.batch.micro
    if not asked.offload:
        return Moved(0.0, 0.0)
    run = pass_of(workload, layout, padded=False)
    sequences = workload.preference.sequences if workload.preference is not None else 1
    found = (activations(workload, run).moved, image_activations(workload, run).moved)
    sizes = [(sequences * micro * size, number) for size, number in found if number]
    return Moved(
        sum(size * number for size, number in sizes),
        sum(power_of_two(round(size)) * number for size, number in sizes),
    )


def power_of_two(size: int) -> int:
    """The least power of two that is no smaller."""
    return 1 << max(size - 1, 0).bit_length()
