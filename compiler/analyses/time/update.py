"""Seconds of the optimizer's step, on the device or on the host, and of its data transfers."""

from typing import Final, NamedTuple

from tunec.compiler.analyses.memory import muon
from tunec.compiler.analyses.memory.counts import count
from tunec.compiler.analyses.memory.modules import BYTES, quantized_bytes
from tunec.compiler.analyses.memory.rank import of_rank
from tunec.compiler.analyses.memory.sharding import PARAMETERS, Sharding, sharding_of
from tunec.compiler.analyses.memory.terms.optimizer import (
    MASTER_BYTES,
    is_paged,
    moments_of,
    paged_moments,
)
from tunec.compiler.analyses.memory.workload import Layout, Workload
from tunec.compiler.analyses.time.coefficients import FITTED, Constants
from tunec.compiler.analyses.time.communication import HIDDEN, PREFETCHED, exposed
from tunec.compiler.analyses.time.compute import product_rate
from tunec.compiler.analyses.time.machine import Machine
from tunec.compiler.ir.slots import States

_FOREACH: Final = 3
"""Passes over the state that torch's foreach kernels take where a fused kernel takes one: AdamW is
a chain of about ten list operations over three to five tensors (torch `optim/adamw.py`)."""

REACHED: Final = 0.7
"""Share of the bandwidth of a PCIe slot, memory bus or drive that long copies reach. A
judgement."""


_THREAD: Final = 1.9e10
"""Bytes a second that one thread moves in that step: 1.9 ns an element of 36 bytes, measured
(deepspeed 0.19.8 `ops/adam/cpu_adam.py` and the scaling before it, a core of an EPYC)."""


_NARROW: Final = 1.1e-9
"""Seconds of a thread for each weight that stage 3 copies from its fp32 master on the host to its
16 bits on the device: torch makes it narrow on the host, in memory that is new each time (deepspeed
0.19.8 `runtime/zero/stage3.py`, `_reassign_or_swap_out_partitioned_parameters`; torch 2.13
`aten/src/ATen/native/cuda/Copy.cu`). Measured: `Tensor.to` of 60 million, a core of an EPYC."""


class UpdateTraffic(NamedTuple):
    """Data that one optimizer step moves, whatever the machine: bytes, in all its micro batches."""

    ranks: int
    """The number of ranks that share the optimizer's states."""
    device: float
    """Through a device's memory, if the optimizer's states are on it."""
    host: float
    """Through the host's memory, by all ranks together, if the optimizer's states are there."""
    gradients: float
    """Between host and one device, in the backward passes."""
    updated: float
    """From the host to one device: updated weights."""
    parameters: float
    """Between host and one device: parameter shards that are offloaded."""
    stored_parameters: float
    """From NVMe to one device."""
    stored_states: float
    """From NVMe and back again, by all ranks together."""
    paged: float
    """Moments in managed memory, which are on the host during the backward pass."""
    orthogonalised: float
    """Operations of one device in matrix products."""
    narrowed: float
    """Updated weights that the host converts to 16 bits, by all ranks together."""
    ahead: bool
    """Whether parameters are copied to the device while it computes."""
    overlapped: bool
    """Whether gradients are copied to the host in a separate stream."""


def update(
    moved: UpdateTraffic, machine: Machine, busy: float, at: Constants = FITTED
) -> dict[str, float]:
    """Seconds of one optimizer step and of offloading in the micro batches before it.

    `busy`: seconds that one device computes; half of them may hide copies of FSDP's parameters, and
    the half of the backward passes copies of gradients.
    """
    ranks, on_node, pcie = moved.ranks, machine.per_node, REACHED * machine.pcie
    terms = {
        "optimizer step": moved.device / machine.bandwidth,
        "offloaded parameters": _parameters(moved, pcie, busy),
        "offloaded gradients": _gradients(moved, pcie, busy) + moved.updated / pcie,
        "host optimizer step": _on_host(moved.host / ranks, machine, at)
        + _narrowing(moved.narrowed / ranks, machine),
    }
    if moved.paged:
        # as where memory is short: out while layers are differentiated, and back for the step
        terms["paged optimizer states"] = 2 * moved.paged / pcie
    if moved.orthogonalised:
        terms["orthogonalisation"] = moved.orthogonalised / product_rate(machine, at)
    if moved.stored_parameters:
        terms["NVMe parameters"] = moved.stored_parameters * on_node / (REACHED * _read(machine))
    if moved.stored_states:
        stored = moved.stored_states * on_node / ranks / REACHED
        terms["NVMe optimizer states"] = stored / _read(machine) + stored / _write(machine)
    return terms


def _on_host(moved: float, machine: Machine, at: Constants) -> float:
    """Seconds of a rank's own bytes: all of a node share its memory bus, each has its threads."""
    threaded = moved / (_THREAD * machine.threads) if machine.threads else 0.0
    return max(moved * machine.per_node / (at.adam * machine.host_bandwidth), threaded)


def _narrowing(weights: float, machine: Machine) -> float:
    """Seconds in which the threads of a rank's process convert its weights to 16 bits."""
    return _NARROW * weights / machine.threads if machine.threads else 0.0


def _parameters(moved: UpdateTraffic, pcie: float, busy: float) -> float:
    """FSDP copies the next unit while one computes (fsdp_qlora's table: as fast as without)."""
    seconds = moved.parameters / pcie
    return exposed(seconds, PREFETCHED, busy / 2) if moved.ahead else seconds


def _gradients(moved: UpdateTraffic, pcie: float, busy: float) -> float:
    """Seconds of copies that the backward pass does not hide.

    The stream in which ZeRO-3 reduces copies too (deepspeed 0.19.8 `runtime/zero/stage3.py`,
    `__reduce_and_partition_ipg_grads`, `partition_grads`: `non_blocking=True`).
    """
    seconds = moved.gradients / pcie
    return exposed(seconds, HIDDEN, busy / 2) if moved.overlapped else seconds


def moved_of(workload: Workload, layout: Layout) -> UpdateTraffic:
    """The data that one optimizer step of a layout moves."""
    ranks = layout.parallel.data * layout.parallel.sequence
    paged = _paged(workload, layout) if is_paged(workload.optimizer) else 0.0
    orthogonalised = _orthogonalised(workload, ranks if layout.zero.stage else 1)
    workload = of_rank(workload, layout.parallel.tensor)
    plan = sharding_of(workload, layout, accumulates=False)
    times = layout.batch.accumulation
    shards = 2 * times * _parameter_shard(workload, plan) if plan.parameters_away else 0
    on_nvme = plan.zero.offload_param == "nvme"
    away = plan.optimizer_away
    stored = moments_of(workload, plan) + MASTER_BYTES * plan.counts.trainable
    return UpdateTraffic(
        ranks=ranks,
        device=0 if away else _device_step(workload, plan),
        host=_host_step(workload, plan) if away else 0,
        gradients=_offloaded_gradients(plan, times) if away else 0,
        updated=plan.parameter * plan.counts.trainable / plan.shards if away else 0,
        parameters=shards,
        stored_parameters=shards if on_nvme else 0,
        stored_states=stored if away and plan.zero.offload_optimizer == "nvme" else 0,
        paged=paged,
        orthogonalised=orthogonalised,
        narrowed=plan.counts.trainable if _is_narrowed(plan) else 0,
        ahead=bool(layout.fsdp.version),
        overlapped=layout.zero.stage == PARAMETERS and layout.zero.overlap_comm,
    )


def _is_narrowed(plan: Sharding) -> bool:
    """Whether the host converts weights; stages 1 and 2 copy masters and convert on the device."""
    on_host = plan.optimizer_away and not plan.parameters_away
    return on_host and plan.zero.stage == PARAMETERS and plan.parameter < MASTER_BYTES


def _paged(workload: Workload, layout: Layout) -> float:
    return paged_moments(workload, sharding_of(workload, layout, accumulates=False))


def _orthogonalised(workload: Workload, sharing: int) -> float:
    """Muon's own operations on each of the ranks that share them."""
    return muon.operations(workload) / sharing if workload.optimizer.name == "muon" else 0.0


def held_bytes(workload: Workload, states: States) -> float:
    """Bytes of the whole base as it is stored, quantised or not."""
    counts, size = count(workload), BYTES[states.weights]
    packed = quantized_bytes(workload.quantization) if counts.quantized else 0
    return size * (counts.base - counts.quantized) + packed * counts.quantized


def _device_step(workload: Workload, plan: Sharding) -> float:
    """Bytes of a step on the device: every state read and written, and the gradient read."""
    passes = _FOREACH if workload.optimizer.kernel in ("foreach", "loop") else 1
    return passes * _state_bytes(workload, plan)


def _state_bytes(workload: Workload, plan: Sharding) -> float:
    """Bytes that a step reads and writes on one rank."""
    trained = plan.shard(plan.counts.trainable, 1)
    moments = plan.shard(moments_of(workload, plan), 1)
    master = MASTER_BYTES if plan.states.master_weights else 0
    return 2 * moments + trained * (2 * master + 2 * plan.parameter + plan.gradient)


def _host_step(workload: Workload, plan: Sharding) -> float:
    """Bytes that the CPU moves: gradients, masters and moments, and 16-bit weights of them.

    DeepSpeed's CPU Adam reads gradients, and reads and writes masters and moments (arXiv
    2101.06840, section 5); before it gradients are scaled where they lie (deepspeed 0.19.8
    `runtime/zero/stage3.py`, `unscale_and_clip_grads`; `stage_1_and_2.py`, the same).
    """
    elements = plan.counts.trainable * (5 * MASTER_BYTES + plan.parameter)
    return 2 * moments_of(workload, plan) + elements


def _offloaded_gradients(plan: Sharding, micro_batches: int) -> float:
    """Bytes of gradients that go down and come up again.

    DeepSpeed adds gradients on the device to those that lie on the host: each micro batch brings
    them up and down again, before stage 3 all of them on every rank; the last sends a shard in fp32
    (deepspeed 0.19.8 `runtime/zero/stage3.py`, `partition_grads`; `stage_1_and_2.py`,
    `async_accumulate_grad_in_cpu_via_gpu`, `async_inplace_copy_grad_to_fp32_buffer_from_gpu`).
    """
    whole, shard = plan.counts.trainable, plan.counts.trainable / plan.shards
    if not plan.zero.stage:
        return plan.gradient * shard * micro_batches
    if plan.zero.stage == PARAMETERS:
        return 2 * plan.gradient * shard * micro_batches + MASTER_BYTES * shard
    again = 2 * micro_batches - 1 if micro_batches > 1 else 0
    return plan.gradient * whole * again + MASTER_BYTES * shard


def _parameter_shard(workload: Workload, plan: Sharding) -> float:
    """Bytes of parameters copied from the host for each pass over the model."""
    return held_bytes(workload, plan.states) / plan.shards + (
        BYTES[plan.states.trainable] * plan.counts.adapters / plan.shards
    )


def _read(machine: Machine) -> float:
    if not machine.nvme_read:
        raise ValueError("state is offloaded to NVMe, but the node has none")
    return machine.nvme_read


def _write(machine: Machine) -> float:
    if not machine.nvme_write:
        raise ValueError("state is offloaded to NVMe, but the node has none")
    return machine.nvme_write
