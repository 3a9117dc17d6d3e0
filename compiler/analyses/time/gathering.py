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
    """How often ZeRO's stage 3 gathers a module: in every pass of a micro batch."""
    if not _is_sharded(layout) or layout.zero.stage != PARAMETERS:
        return 0
    return _modules(workload, layout.zero.persistence_threshold).gathered * passes(layout)


def found_whole(workload: Workload, layout: Layout) -> int:
    """How often a hook of stage 3 finds a module whose weight all ranks keep.

    deepspeed 0.19.8 `runtime/zero/parameter_offload.py`, `mark_persistent_parameters`. Both halves
    of an adapter are modules too, and are found whole or in transfer: the prefetch of a layer
    combines small ones (`partitioned_param_coordinator.py`, `fetch_sub_module`).
    """
    if not _is_sharded(layout) or layout.zero.stage != PARAMETERS:
        return 0
    return _modules(workload, layout.zero.persistence_threshold).whole * passes(layout)


def hooks(workload: Workload, layout: Layout) -> int:
    """Gradients that a hook of stage 2 takes from the backward pass, in Python.

    deepspeed 0.19.8 `runtime/zero/stage_1_and_2.py`,
    `reduce_independent_p_g_buckets_and_remove_grads`. Stage 3's hooks are included in the time of a
    module.
    """
    if not _is_sharded(layout) or layout.zero.stage != GRADIENTS:
        return 0
    return _gradients(workload)


def _is_sharded(layout: Layout) -> bool:
    alone = layout.parallel.data * layout.parallel.sequence == 1
    return layout.parallel.engine == "deepspeed" and not alone


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
