"""Seconds in which devices exchange gradients and parameters in one optimizer step."""

from typing import Final, NamedTuple

from tunec.compiler.analyses.memory.counts import Counts, count
from tunec.compiler.analyses.memory.modules import BYTES, experts_apart
from tunec.compiler.analyses.memory.rank import of_rank
from tunec.compiler.analyses.memory.sharding import GRADIENTS, PARAMETERS
from tunec.compiler.analyses.memory.terms.fsdp_units import gradient_width, units_of
from tunec.compiler.analyses.memory.workload import Layout, Workload
from tunec.compiler.analyses.time.flops import part_tokens
from tunec.compiler.analyses.time.machine import Machine
from tunec.schemas.frozen import replace

REACHED: Final = 0.75
"""Share of a link's data sheet bandwidth that a ring collective of large messages reaches. A
judgement, not a measurement."""

HIDDEN: Final = 0.9
"""Share of FSDP's gradients that are reduced, and of offloaded ones that are copied, while the
device computes; those of the last unit never are. A judgement."""

_CAP: Final = 25 * 2**20
"""Bytes of a bucket of DDP (torch 2.13 `nn/parallel/distributed.py`, `bucket_cap_mb`)."""

PREFETCHED: Final = 0.7
"""Share of stage 3's gathers that can run while the device computes: the first of each pass and
those that wait for memory cannot. A judgement."""


class Volume(NamedTuple):
    """The data that ranks exchange in one optimizer step, whatever links them."""

    gradients: float
    """Bytes that each rank sends around a ring; `parameters` has the same unit."""
    parameters: float
    tensor_parallel: float
    """Bytes that each rank of a tensor-parallel group sends."""
    sequence_parallel: float
    """Bytes that each rank of a group that shares a sequence sends."""
    hidden: float
    """Share of the gradients that may be sent while the device computes."""
    prefetched: bool
    """Whether parameters may be sent meanwhile too; not if the host waits for the device at each
    expert."""
    replicas: float = 0
    """Bytes of gradients that each rank sends to other nodes, if everything else stays inside a
    node."""


def communication(volume: Volume, machine: Machine, busy: float) -> dict[str, float]:
    """Seconds of exchange that computing does not hide, in one optimizer step.

    `busy`: seconds that one device computes in that step. Volumes after ZeRO (arXiv 1910.02054,
    section 7): data parallelism moves 2 parameters' worth a step, stage 3 3, of which the gathered
    parameters move once more for every micro batch.
    """
    inside = replace(machine, nodes=1) if volume.replicas else machine
    gradients = ring_seconds(volume.gradients, inside) + ring_seconds(volume.replicas, machine)
    parameters = ring_seconds(volume.parameters, inside)
    gradients = exposed(gradients, volume.hidden, busy / 2)
    if volume.prefetched:
        parameters = exposed(parameters, PREFETCHED, busy / 2)
    return {
        "tensor parallel exchange": volume.tensor_parallel / (REACHED * machine.link),
        "sequence parallel exchange": volume.sequence_parallel / (REACHED * machine.link),
        "gradient exchange": gradients,
        "parameter exchange": parameters,
    }


def volume_of(workload: Workload, layout: Layout) -> Volume:
    """The data that the ranks of a layout exchange."""
    ranks = layout.parallel.data * layout.parallel.sequence
    counts = count(of_rank(workload, layout.parallel.tensor))
    whole = _stage(layout) == PARAMETERS and ranks > 1
    if layout.fsdp.version:
        return _fsdp(workload, layout)
    return Volume(
        gradients=gradient_bytes(counts, layout) * (ranks - 1) / ranks,
        parameters=parameter_bytes(counts, layout) * (ranks - 1) / ranks,
        tensor_parallel=_tensor_parallel(workload, layout),
        sequence_parallel=_sequence_parallel(workload, layout),
        hidden=_hidden(counts, layout),
        prefetched=whole and not experts_apart(workload),
    )


def _fsdp(workload: Workload, layout: Layout) -> Volume:
    """The data that FSDP's ranks exchange; with hybrid sharding, nodes only share gradients."""
    ranks = layout.parallel.data
    hybrid = layout.fsdp.sharding == "hybrid" and layout.nodes > 1
    among = max(ranks // layout.nodes, 1) if hybrid else ranks
    between = (layout.nodes - 1) / layout.nodes if hybrid else 0
    return Volume(
        gradients=reduced_bytes(workload, layout) * (among - 1) / among,
        parameters=gathered_bytes(workload, layout) * (among - 1) / among,
        tensor_parallel=_tensor_parallel(workload, layout),
        sequence_parallel=0,
        hidden=HIDDEN,
        prefetched=layout.fsdp.backward_prefetch != "none" and not experts_apart(workload),
        replicas=replicated_bytes(workload, layout) * between,
    )


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


def ring_seconds(carried: float, machine: Machine) -> float:
    """Seconds of one pass around a ring over all ranks: the slowest link decides.

    `carried`: what each rank sends, (n - 1)/n of all bytes (Patarasuk and Yuan, "Bandwidth optimal
    all-reduce algorithms for clusters of workstations", 2009); what leaves a node shares its
    adapters.
    """
    inside = carried / (REACHED * machine.link) if machine.per_node > 1 else 0
    between = carried / (REACHED * machine.network) if machine.nodes > 1 else 0
    return max(inside, between)


def _hidden(counts: Counts, layout: Layout) -> float:
    """Share of gradients in buckets that are full before the backward pass has ended.

    The last bucket waits for its end (deepspeed 0.19.8 `runtime/zero/stage_1_and_2.py`,
    `independent_gradient_partition_epilogue`; `stage3.py`, the same), and one that holds all
    gradients hides nothing.
    """
    if not counts.trainable:
        return 0.0
    if layout.parallel.engine == "ddp":
        last = _CAP / BYTES[layout.states.trainable]
    elif _stage(layout) and layout.zero.overlap_comm:
        last = layout.zero.reduce_bucket
    else:
        return 0.0
    return max(0.0, 1 - last / counts.trainable)


def exposed(seconds: float, share: float, room: float) -> float:
    """The rest of an exchange, if `room` seconds of computing can hide a share of it."""
    return seconds - min(share * seconds, room)


def _stage(layout: Layout) -> int:
    return layout.zero.stage if layout.parallel.engine == "deepspeed" else 0


def _tensor_parallel(workload: Workload, layout: Layout) -> float:
    """Four all-reduces of the hidden states a layer (Megatron-LM, arXiv 1909.08053, 3).

    Two more where the layer is recomputed. A head of its own gathers its logits and reduces the
    gradient of what it read (deepspeed 0.19.8 `module_inject/layers.py`, `LinearLayer`).
    """
    width = layout.parallel.tensor
    if width == 1:
        return 0
    model = workload.architecture
    states = sum(
        part_tokens(workload, stack.part) * stack.layers * stack.hidden for stack in model.stacks
    )
    moved = 2 * (4 + 2 * _recomputed(layout)) * states
    if not model.tied:
        moved += part_tokens(workload, "text") * (model.vocab + 2 * model.hidden)
    return (width - 1) / width * BYTES[workload.precision.compute] * moved * _samples(layout)


def _sequence_parallel(workload: Workload, layout: Layout) -> float:
    """Queries, keys, values and outputs of attention go to the ranks of their heads and back.

    Once forward and once backward, and again where the layer is recomputed (DeepSpeed-Ulysses,
    arXiv 2309.14509, 3.2); fewer key-value heads than ranks are repeated before.
    """
    width = layout.parallel.sequence
    if width == 1:
        return 0
    exchanged = sum(
        part_tokens(workload, stack.part)
        * stack.layers
        * 2
        * (stack.heads + max(stack.kv_heads, width))
        * stack.head_dim
        for stack in workload.architecture.stacks
    )
    moved = (2 + _recomputed(layout)) * exchanged / width
    return (width - 1) / width * BYTES[workload.precision.compute] * moved * _samples(layout)


def rearranged_bytes(workload: Workload, width: int) -> float:
    """Bytes of one sample that copies around these exchanges move in one pass, over all its ranks.

    Queries, keys and values are copied before and after, outputs after (deepspeed 0.19.8
    `runtime/sequence_parallel/ulysses_sp.py`, `UlyssesSPAttentionHF`).
    """
    if width == 1:
        return 0
    copied = sum(
        part_tokens(workload, stack.part)
        * stack.layers
        * (3 * stack.heads + 4 * max(stack.kv_heads, width))
        * stack.head_dim
        for stack in workload.architecture.stacks
    )
    return 2 * BYTES[workload.precision.compute] * copied


def _recomputed(layout: Layout) -> bool:
    return layout.activation_checkpointing.mode == "layer"


def _samples(layout: Layout) -> int:
    """Samples that one group of ranks processes in an optimizer step."""
    return layout.batch.micro * layout.batch.accumulation


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
