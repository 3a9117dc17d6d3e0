"""Gradients and temporaries while the optimizer steps."""

from tunec.compiler.analyses.memory.gradients import partition_buffer
from tunec.compiler.analyses.memory.phase import Terms
from tunec.compiler.analyses.memory.sharding import (
    PARAMETERS,
    Sharding,
    accumulates_whole_fp32,
    is_hooked,
)
from tunec.compiler.analyses.memory.states import MASTER_BYTES, step_bytes
from tunec.compiler.analyses.memory.workload import Workload

_NORM_BYTES = 8
"""Bytes an element of the copy that a gradient's norm is taken of, one tensor after the other
(deepspeed 0.19.8 `runtime/zero/stage_1_and_2.py`, `get_grad_norm_direct`; `zero/utils.py`,
`get_norm_dtype`: fp64 wherever the device has it)."""


def optimizer_step(workload: Workload, plan: Sharding) -> Terms:
    """Gradients and temporaries while the optimizer steps, in bytes."""
    terms = dict(_step_gradients(plan))
    if not plan.optimizer_away:
        stepped = plan.shard(plan.counts.trainable, 1)
        if plan.stage == PARAMETERS:
            stepped = min(stepped, plan.zero.sub_group_size)
        largest = plan.counts.largest if plan.stage == 0 else 0
        terms["optimizer temporaries"] = step_bytes(
            workload.optimizer, plan.states, stepped, largest
        )
    return terms


def _step_gradients(plan: Sharding) -> Terms:
    trainable, gradient = plan.counts.trainable, plan.gradient
    if plan.stage == 0:
        return _stage0_step(plan)
    if plan.optimizer_away:
        whole = plan.stage == 1 and not is_hooked(plan)
        return {"gradients": float(gradient * trainable)} if whole else {}
    if plan.stage == PARAMETERS:
        return _stage3_step(plan)
    if accumulates_whole_fp32(plan):
        return {"new gradients": plan.parameter * trainable}
    norm = {"fp64 gradients": float(_NORM_BYTES * plan.partition.piece)}
    if gradient > plan.parameter:
        return {"accumulated gradients": gradient * trainable / plan.shards, **norm}
    flattened = {
        "averaged gradients": gradient * trainable / plan.shards,
        "fp32 gradients": _fp32_gradients(plan, trainable / plan.shards),
    }
    larger = max(norm, flattened, key=lambda terms: sum(terms.values()))
    return {"gradient partition": partition_buffer(plan), **larger}


def _stage0_step(plan: Sharding) -> Terms:
    terms = {"gradients": float(plan.gradient * plan.counts.trainable)}
    if plan.deepspeed:
        terms["fp32 gradients"] = _fp32_gradients(plan, plan.counts.trainable)
    return terms


def _stage3_step(plan: Sharding) -> Terms:
    """One sub-group at a time: its gradients in fp32 and in the parameters' dtype."""
    group = min(plan.counts.trainable / plan.shards, plan.zero.sub_group_size)
    if plan.gradient > plan.parameter:
        return {"fp32 gradients": MASTER_BYTES * group}
    return {
        "fp32 gradients": _fp32_gradients(plan, group),
        "averaged gradients": plan.gradient * group,
    }


def _fp32_gradients(plan: Sharding, elements: float) -> float:
    """16-bit gradients are copied to fp32 for fp32 masters."""
    return (
        MASTER_BYTES * elements
        if plan.states.master_weights and plan.gradient < MASTER_BYTES
        else 0
    )
