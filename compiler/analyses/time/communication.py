"""Seconds that devices exchange gradients and parameters in one optimizer step."""

from functools import lru_cache
from typing import Final

from tunec.compiler.analyses.memory.counts import Counts, count
from tunec.compiler.analyses.memory.dtypes import BYTES
from tunec.compiler.analyses.memory.sharding import GRADIENTS, PARAMETERS
from tunec.compiler.analyses.memory.workload import Layout, Workload
from tunec.compiler.analyses.time.machine import Machine
from tunec.compiler.analyses.time.tokens import part_tokens

REACHED: Final = 0.75
"""Share of a link's data sheet bandwidth that a ring collective of large messages reaches. A
judgement, not a measurement."""

HIDDEN: Final = 0.9
"""Share of a gradient exchange that can run while the device computes, where the engine overlaps
them: the last bucket never can. A judgement."""

PREFETCHED: Final = 0.7
"""The same for parameters that stage 3 gathers: the first of each pass and those that wait for
memory cannot. A judgement."""

GATHER: Final = 50e-6
"""Seconds that stage 3 adds to each module in each pass over it: its hooks run in Python and each
starts a collective (deepspeed 0.19.8 `runtime/zero/parameter_offload.py`). A judgement."""


def communication(
    workload: Workload, layout: Layout, machine: Machine, busy: float
) -> dict[str, float]:
    """Seconds of exchange that computing does not hide, in one optimizer step.

    `busy`: seconds that one device computes in that step. Volumes after ZeRO (arXiv 1910.02054,
    section 7): data parallelism moves 2 parameters' worth a step, stage 3 3, of which the gathered
    parameters move once more for every micro batch.
    """
    shards = layout.parallel.data * layout.parallel.sequence
    terms = {"tensor parallel exchange": _tensor_parallel(workload, layout, machine)}
    if shards == 1:
        return terms
    counts = count(workload)
    gradients = ring_seconds(gradient_bytes(counts, layout), layout, machine)
    parameters = ring_seconds(parameter_bytes(counts, layout), layout, machine)
    overlapped = busy if overlaps(layout) else 0
    terms["gradient exchange"] = _exposed(gradients, HIDDEN, overlapped / 2)
    if _stage(layout) < PARAMETERS:
        return {**terms, "parameter exchange": parameters}
    terms["parameter exchange"] = _exposed(parameters, PREFETCHED, busy / 2)
    terms["parameter gathering"] = GATHER * gathers(workload, layout)
    return terms


def gathers(workload: Workload, layout: Layout) -> int:
    """How often stage 3 gathers a module in one optimizer step: in every pass of a micro batch."""
    passes = 3 if layout.activation_checkpointing.mode == "layer" else 2
    return _modules(workload) * passes * layout.batch.accumulation


@lru_cache(maxsize=256)
def _modules(workload: Workload) -> int:
    return sum(module.copies for module in workload.architecture.modules)


def gradient_bytes(counts: Counts, layout: Layout) -> float:
    """Bytes that a ring carries for gradients in one optimizer step, before the ring's own share.

    An all-reduce is a reduce-scatter and an all-gather, and counts twice. Stages 2 and 3 reduce
    after every micro batch; DDP, stage 0 and stage 1 after the last.
    """
    stage = _stage(layout)
    size = BYTES[layout.states.trainable] * counts.trainable
    if stage >= GRADIENTS:
        return size * layout.batch.accumulation
    return size if stage == 1 else 2 * size


def parameter_bytes(counts: Counts, layout: Layout) -> float:
    """Bytes that a ring carries for parameters in one optimizer step.

    Stages 1 and 2 gather what was updated once a step. Stage 3 gathers the whole model, frozen
    weights too, forward and backward in every micro batch; what checkpointing repeats is still
    whole.
    """
    stage = _stage(layout)
    if stage == 0:
        return 0
    if stage < PARAMETERS:
        return BYTES[layout.states.trainable] * counts.trainable
    whole = BYTES[layout.states.weights] * (counts.base + counts.adapters)
    return 2 * whole * layout.batch.accumulation


def ring_seconds(size: float, layout: Layout, machine: Machine) -> float:
    """Seconds of one pass around a ring over all ranks: the slowest link decides.

    Each rank sends (n - 1)/n of the bytes (Patarasuk and Yuan, "Bandwidth optimal all-reduce
    algorithms for clusters of workstations", 2009); what leaves a node shares its adapters.
    """
    ranks = layout.parallel.data * layout.parallel.sequence
    carried = size * (ranks - 1) / ranks
    inside = carried / (REACHED * machine.link) if machine.per_node > 1 else 0
    between = carried / (REACHED * machine.network) if machine.nodes > 1 else 0
    return max(inside, between)


def overlaps(layout: Layout) -> bool:
    """Whether gradients travel during the backward pass: DDP always, DeepSpeed if asked."""
    if layout.parallel.engine == "deepspeed":
        return layout.zero.overlap_comm and layout.zero.stage > 0
    return layout.parallel.engine == "ddp"


def _exposed(seconds: float, share: float, room: float) -> float:
    """What is left of an exchange when `room` seconds of computing can hide a share of it."""
    return seconds - min(share * seconds, room)


def _stage(layout: Layout) -> int:
    return layout.zero.stage if layout.parallel.engine == "deepspeed" else 0


def _tensor_parallel(workload: Workload, layout: Layout, machine: Machine) -> float:
    """Four all-reduces of the hidden states a layer (Megatron-LM, arXiv 1909.08053, 3)."""
    width = layout.parallel.tensor
    if width == 1:
        return 0
    states = sum(
        part_tokens(workload, stack.part) * stack.layers * stack.hidden
        for stack in workload.architecture.stacks
    )
    batches = layout.batch.micro * layout.batch.accumulation
    moved = 4 * 2 * (width - 1) / width * BYTES[workload.precision.compute] * states * batches
    return moved / (REACHED * machine.link)
