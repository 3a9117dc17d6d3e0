"""Gradients and temporaries while the optimizer steps."""

from collections.abc import Iterator
from math import prod

from tunec.compiler.analyses.memory.counts import tables_of
from tunec.compiler.analyses.memory.gradients import partition_buffer, reduce_buckets
from tunec.compiler.analyses.memory.muon import INLINE_ADAM_UNTIL, Halves, gathers, working
from tunec.compiler.analyses.memory.partition import trained_sizes
from tunec.compiler.analyses.memory.sharding import (
    PARAMETERS,
    Sharding,
    accumulates_whole_fp32,
    is_hooked,
    paged_moments,
)
from tunec.compiler.analyses.memory.states import (
    MASTER_BYTES,
    in_backward_bytes,
    is_paged,
    paged_bytes,
    step_bytes,
)
from tunec.compiler.analyses.memory.timeline import Sizes
from tunec.compiler.analyses.memory.workload import Workload

_NORM_BYTES = 8
"""Bytes an element of the copy that a gradient's norm is taken of, one tensor after the other
(deepspeed 0.19.8 `runtime/zero/stage_1_and_2.py`, `get_grad_norm_direct`; `zero/utils.py`,
`get_norm_dtype`: fp64 wherever the device has it)."""


def optimizer_step(workload: Workload, plan: Sharding) -> Sizes:
    """Gradients and temporaries while the optimizer steps, in bytes."""
    if plan.halves is not None:
        return max(_of_muon(plan, plan.halves), key=lambda terms: sum(terms.values()))
    if plan.releases:
        last = plan.counts.embedding or plan.counts.inner
        return {"optimizer temporaries": in_backward_bytes(workload.optimizer, plan.states, last)}
    before = _step_gradients(plan)
    if plan.optimizer_away:
        return before
    stepped = plan.shard(plan.counts.trainable, 1)
    if plan.stage == PARAMETERS:
        stepped = min(stepped, plan.zero.sub_group_size)
    largest = plan.counts.largest if plan.stage == 0 else 0
    terms = dict(_stepped_gradients(plan, before, stepped))
    if is_paged(workload.optimizer):
        terms["paged states of a tensor"] = _paged_tensor(workload, plan)
    terms["optimizer temporaries"] = step_bytes(
        workload.optimizer, plan.states, stepped, largest, workload.version("torch")
    )
    return max(before, terms, key=lambda each: sum(each.values()))


def _stepped_gradients(plan: Sharding, before: Sizes, stepped: float) -> Sizes:
    """Gradients while the optimizer itself steps, when those they were made of are let go.

    deepspeed 0.19.8 `runtime/zero/stage_1_and_2.py` and `stage3.py`, `step`: `averaged_gradients`
    become None first.
    """
    if plan.stage == 0 or accumulates_whole_fp32(plan):
        return before
    if plan.gradient > plan.parameter and plan.stage < PARAMETERS:
        return {"accumulated gradients": plan.gradient * stepped}
    size = MASTER_BYTES if plan.states.master_weights else plan.gradient
    return {"fp32 gradients": float(size * stepped)}


def _step_gradients(plan: Sharding) -> Sizes:
    trainable, gradient = plan.counts.trainable, plan.gradient
    if plan.stage == 0:
        return _stage0_step(plan)
    if plan.optimizer_away:
        whole = plan.stage == 1 and not is_hooked(plan)
        return {"gradients": float(gradient * trainable)} if whole else {}
    if plan.stage == PARAMETERS:
        return _stage3_step(plan, trainable)
    if accumulates_whole_fp32(plan):
        return {"new gradients": plan.parameter * trainable}
    norm = {"fp64 gradients": float(_NORM_BYTES * plan.partition.piece)}
    if gradient > plan.parameter:
        return {"accumulated gradients": gradient * trainable / plan.shards, **norm}
    larger = max(
        norm, _flattened(plan, trainable / plan.shards), key=lambda terms: sum(terms.values())
    )
    return {"gradient partition": partition_buffer(plan), **larger}


def _paged_tensor(workload: Workload, plan: Sharding) -> float:
    """The moments that must be on the device at once: of the tensor that is stepped.

    Of 8-bit moments an embedding table's are the largest, since they are in fp32.
    """
    if plan.stage:
        return paged_moments(workload, plan)
    optimizer, states = workload.optimizer, plan.states
    largest = max(trained_sizes(workload), default=0)
    table = max((prod(m.shape) for m in tables_of(workload)), default=0)
    return max(
        paged_bytes(optimizer, states, (largest,), 0),
        paged_bytes(optimizer, states, (table,), table),
    )


def at_orthogonalisation(plan: Sharding, found: Halves) -> Sizes:
    """When stage 1 or 2 makes the last of Muon's updates, while its bucket is still there."""
    last = working(found.largest, plan.gradient) - plan.gradient * found.widest
    return {
        **reduce_buckets(plan),
        "gradient partition": partition_buffer(plan),
        "updates": float(plan.gradient * found.own_matrices),
        "orthogonalisation": float(last),
    }


def _of_muon(plan: Sharding, found: Halves) -> Iterator[Sizes]:
    """Moments of a step by Muon: for the norm, then one half after the other."""
    gradient, ranks = plan.gradient, plan.shards
    if plan.stage == 0:
        update = float(working(found.largest, MASTER_BYTES))
        before = float(MASTER_BYTES * found.widest)
        yield {**_stage0_step(plan), "updates": before, "orthogonalisation": update}
        return
    if plan.stage == PARAMETERS:
        yield gathers(plan.workload, ranks, plan.zero.reduce_bucket, gradient).highest
        yield _stage3_step(plan, max(found.matrices, found.rest))
        return
    held = {"gradient partition": partition_buffer(plan)}
    updates = {"updates": float(gradient * found.own_matrices)}
    yield {**held, **updates, "fp64 gradients": float(_NORM_BYTES * plan.partition.piece)}
    yield {**held, **updates, **_flattened(plan, found.matrices / ranks)}
    yield {**held, **_flattened(plan, found.rest / ranks)}
    version = plan.workload.version("deepspeed")
    if version is not None and version < INLINE_ADAM_UNTIL:
        elements = found.rest / ranks
        temporaries = {"optimizer temporaries": 4.0 * MASTER_BYTES * elements}
        yield {**held, "fp32 gradients": _fp32_gradients(plan, elements), **temporaries}


def _flattened(plan: Sharding, elements: float) -> Sizes:
    return {
        "averaged gradients": plan.gradient * elements,
        "fp32 gradients": _fp32_gradients(plan, elements),
    }


def _stage0_step(plan: Sharding) -> Sizes:
    """Gradients, each in fp32 too; for DeepSpeed's own Adam those are then laid out as one tensor.

    deepspeed 0.19.8 `runtime/fp16/fused_optimizer.py`, `FP16_Optimizer.step`, which
    `runtime/engine.py`, `_configure_fp16_optimizer`, takes for FusedAdam alone, in bf16 as in fp16;
    the same in 0.14.5 and 0.16.2.
    """
    terms = {"gradients": float(plan.gradient * plan.counts.trainable)}
    if plan.deepspeed:
        widened = _fp32_gradients(plan, plan.counts.trainable)
        terms["fp32 gradients"] = widened
        optimizer = plan.workload.optimizer
        if optimizer.kernel == "own" and optimizer.name == "adamw":
            terms["flat fp32 gradients"] = widened
    return terms


def _stage3_step(plan: Sharding, elements: float) -> Sizes:
    """One sub-group at a time: its gradients in fp32 and in the parameters' dtype."""
    group = min(elements / plan.shards, plan.zero.sub_group_size)
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
