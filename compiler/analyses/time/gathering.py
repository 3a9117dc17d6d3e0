"""How often the host gathers parameters or reduces a gradient in one micro batch."""

from math import prod
from typing import NamedTuple

from tunec.compiler.analyses.memory.sharding import GRADIENTS, PARAMETERS
from tunec.compiler.analyses.memory.workload import Layout, Workload
from tunec.schemas.caches import cached


def passes(layout: Layout) -> int:
    """The number of passes over the layers."""
    return 3 if layout.activation_checkpointing.mode == "layer" else 2


def gathers(workload: Workload, layout: Layout) -> int:
    """How often ZeRO's stage 3 gathers a module: in every pass of a micro batch.

    One rank alone has all of these hooks and fetches too, without the collective (deepspeed 0.19.8
    `runtime/zero/partition_parameters.py`, `_no_gather_coalesced`), and they take as long: 0.2 ms
    of a core on a CPU, where a kernel takes 0.01.
    """
    if _stage(layout) != PARAMETERS:
        return 0
    return _modules(workload, layout.zero.persistence_threshold).gathered * passes(layout)


def copied(workload: Workload, layout: Layout) -> int:
    """How many of these modules are copied from the host."""
    return gathers(workload, layout) if layout.zero.offload_param != "none" else 0


def found_whole(workload: Workload, layout: Layout) -> int:
    """How often a hook of stage 3 finds a module whose weight all ranks keep.

    deepspeed 0.19.8 `runtime/zero/parameter_offload.py`, `mark_persistent_parameters`. Both halves
    of an adapter are modules too, and are found whole or in transfer: the prefetch of a layer
    combines small ones (`partitioned_param_coordinator.py`, `fetch_sub_module`).
    """
    if _stage(layout) != PARAMETERS:
        return 0
    return _modules(workload, layout.zero.persistence_threshold).whole * passes(layout)


def hooks(workload: Workload, layout: Layout) -> float:
    """Gradients that a hook takes from the backward pass in Python, on average over micro batches.

    Stage 2 takes each in each of them; stage 1, if its exchange overlaps, in the last (deepspeed
    0.19.8 `runtime/zero/stage_1_and_2.py`, `create_gradient_handling_hooks`,
    `reduce_ready_partitions_and_remove_grads`). Stage 3's hooks are included in the time of a
    module.
    """
    if _stage(layout) == GRADIENTS:
        return _gradients(workload)
    return _at_the_end(workload, layout) if layout.zero.overlap_comm else 0


def carried(workload: Workload, layout: Layout) -> float:
    """Gradients that are copied to the host one by one, on average over micro batches.

    Each is measured, placed and copied (deepspeed 0.19.8 `runtime/zero/stage_1_and_2.py`,
    `copy_grads_in_partition`; `stage3.py`, `partition_grads`).
    """
    if layout.zero.offload_optimizer == "none":
        return 0
    if _stage(layout) >= GRADIENTS:
        return _gradients(workload)
    return _at_the_end(workload, layout)


def _at_the_end(workload: Workload, layout: Layout) -> float:
    """Gradients of stage 1, which handles them in the last micro batch of a step."""
    return _gradients(workload) / layout.batch.accumulation if _stage(layout) == 1 else 0


def _stage(layout: Layout) -> int:
    return layout.zero.stage if layout.parallel.engine == "deepspeed" else 0


def units(workload: Workload, layout: Layout) -> int:
    """How often FSDP gathers a unit, forward and backward; what is recomputed is whole already.

    A unit is a layer, and under FSDP 1 each half of an adapter too (peft 0.21 `utils/other.py`,
    `fsdp_auto_wrap_policy`: leaves whose weight is trained).
    """
    if not layout.fsdp.version or layout.fsdp.sharding == "none":
        return 0
    leaves = sum(m.copies for m in workload.adapted) if layout.fsdp.version == 1 else 0
    return 2 * (sum(stack.layers for stack in workload.architecture.stacks) + 2 * leaves)


class _Modules(NamedTuple):
    gathered: int
    whole: int


@cached(256)
def _modules(workload: Workload, threshold: int) -> _Modules:
    every = workload.architecture.modules
    whole = sum(module.copies for module in every if prod(module.shape) <= threshold)
    halves = 2 * sum(module.copies for module in workload.adapted)
    return _Modules(sum(module.copies for module in every) - whole, whole + halves)


@cached(256)
def _gradients(workload: Workload) -> int:
    """The number of trained tensors: weights, biases, and both halves of each adapter."""
    whole = sum((1 + bool(module.bias)) * module.copies for module in workload.trained)
    return whole + 2 * sum(module.copies for module in workload.adapted)
