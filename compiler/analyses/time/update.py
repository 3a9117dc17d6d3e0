"""Seconds of the optimizer's step, on the device or on the host, and of what is moved for it."""

from typing import Final

from tunec.compiler.analyses.memory.dtypes import BYTES
from tunec.compiler.analyses.memory.sharding import Sharding, moments_of, sharding
from tunec.compiler.analyses.memory.states import MASTER_BYTES
from tunec.compiler.analyses.memory.workload import Layout, Workload
from tunec.compiler.analyses.time.machine import Machine

_FOREACH: Final = 3
"""Passes over the state that torch's foreach kernels take where a fused kernel takes one: AdamW is
a chain of about ten list operations over three to five tensors (torch `optim/adamw.py`)."""

REACHED: Final = 0.7
"""Share of a PCIe slot's, a memory bus's or a drive's bandwidth that long copies reach. A
judgement."""


def update(workload: Workload, layout: Layout, machine: Machine) -> dict[str, float]:
    """Seconds of one optimizer step and of offloading in the micro batches before it."""
    plan = sharding(workload, layout.parallel, layout.states, layout.zero, accumulates=False)
    terms = _moved_parameters(plan, layout, machine)
    if not plan.optimizer_away:
        return {**terms, "optimizer step": _device_step(workload, plan, machine)}
    terms["offloaded gradients"] = _offloaded_gradients(plan, layout, machine)
    terms["host optimizer step"] = _host_step(workload, plan, machine)
    if plan.zero.offload_optimizer == "nvme":
        terms["NVMe optimizer states"] = _nvme_states(workload, plan, machine)
    return terms


def _device_step(workload: Workload, plan: Sharding, machine: Machine) -> float:
    """Every state is read and written once; what is not a moment also has its gradient read."""
    passes = _FOREACH if workload.optimizer.kernel in ("foreach", "loop") else 1
    return passes * _state_bytes(workload, plan) / machine.bandwidth


def _state_bytes(workload: Workload, plan: Sharding) -> float:
    """Bytes that a step reads and writes on one rank."""
    trained = plan.shard(plan.counts.trainable, 1)
    moments = plan.shard(moments_of(workload, plan), 1)
    master = MASTER_BYTES if plan.states.master_weights else 0
    return 2 * moments + trained * (2 * master + 2 * plan.parameter + plan.gradient)


def _host_step(workload: Workload, plan: Sharding, machine: Machine) -> float:
    """The CPU reads gradients, reads and writes masters and moments, and writes 16-bit weights.

    All ranks of a node share its memory bus (DeepSpeed's CPU Adam, arXiv 2101.06840, section 5).
    """
    share = machine.per_node / plan.shards
    moments = moments_of(workload, plan)
    elements = plan.counts.trainable * (3 * MASTER_BYTES + plan.parameter)
    return share * (2 * moments + elements) / (REACHED * machine.host_bandwidth)


def _offloaded_gradients(plan: Sharding, layout: Layout, machine: Machine) -> float:
    """Gradients go down after every micro batch, updated weights come up once a step."""
    elements = plan.counts.trainable / plan.shards
    down = plan.gradient * elements * layout.batch.accumulation
    return (down + plan.parameter * elements) / (REACHED * machine.pcie)


def _moved_parameters(plan: Sharding, layout: Layout, machine: Machine) -> dict[str, float]:
    """Parameter shards that come up from the host, forward and backward of every micro batch."""
    if not plan.parameters_away:
        return {}
    shard = BYTES[plan.states.weights] * (plan.counts.base + plan.counts.adapters) / plan.shards
    moved = 2 * shard * layout.batch.accumulation
    terms = {"offloaded parameters": moved / (REACHED * machine.pcie)}
    if plan.zero.offload_param == "nvme":
        terms["NVMe parameters"] = moved * machine.per_node / (REACHED * _read(machine))
    return terms


def _nvme_states(workload: Workload, plan: Sharding, machine: Machine) -> float:
    """Masters and moments of a node's shards are read and written once a step."""
    share = machine.per_node / plan.shards
    moments = moments_of(workload, plan)
    size = share * (moments + MASTER_BYTES * plan.counts.trainable)
    return size / (REACHED * _read(machine)) + size / (REACHED * _write(machine))


def _read(machine: Machine) -> float:
    if not machine.nvme_read:
        raise ValueError("state is offloaded to NVMe, but the node has none")
    return machine.nvme_read


def _write(machine: Machine) -> float:
    if not machine.nvme_write:
        raise ValueError("state is offloaded to NVMe, but the node has none")
    return machine.nvme_write
