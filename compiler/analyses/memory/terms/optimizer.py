"""The optimizer's moments, and the temporary memory of its step."""

from collections.abc import Iterable, Iterator
from math import prod
from typing import Final

from packaging.version import Version

from tunec.compiler.analyses.memory.counts import Counts, tables_of
from tunec.compiler.analyses.memory.modules import BYTES
from tunec.compiler.analyses.memory.muon import INLINE_ADAM_UNTIL, Halves, gathers, momenta, working
from tunec.compiler.analyses.memory.sharding import (
    PARAMETERS,
    Sharding,
    accumulates_whole_fp32,
    is_hooked,
    partition_buffer,
    reduce_buckets,
)
from tunec.compiler.analyses.memory.timeline import Sizes
from tunec.compiler.analyses.memory.trained_tensors import trained_sizes
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.ir.slots import Optimizer, States
from tunec.schemas.terms import STEPS_IN_BACKWARD, OptimizerName

MASTER_BYTES: Final = 4
"""Bytes per element of an fp32 copy of a trained parameter (ZeRO, arXiv 1910.02054, section
3.1)."""

_ADDS_IN_PLACE: Final = Version("2.1")
"""The first release of torch whose foreach Adam makes no second copy (its pull request 104898)."""

MOMENTS: Final[dict[OptimizerName, int]] = {
    "adamw": 2,
    "adamw_8bit": 2,
    "paged_adamw_8bit": 2,
    "paged_adamw_32bit": 2,
    "adamw_bf16": 3,
    "lion": 1,
    "lion_8bit": 1,
    "paged_lion_8bit": 1,
    "paged_lion_32bit": 1,
    "sgd": 0,
    "lomo": 0,
}
"""Tensors of the parameter's shape that each optimizer keeps. Adam (arXiv 1412.6980) two, Lion
(arXiv 2302.06675) one, torch's SGD without momentum none; AdamWBF16 (arogozhnikov/adamw_bfloat16,
as SimpleTuner ships it) a third for what rounding to bf16 lost. Adafactor and AdaLOMO keep sums of
rows and columns instead (lomo-optim 0.1.1 `adalomo.py`: `exp_avg_sq_row`, `exp_avg_sq_col`)."""

_EIGHT_BIT: Final = 1 + 4 / 256
"""Bytes an element of an 8-bit moment: one, and an fp32 scale for each block of 256 (bitsandbytes
0.44, `optim/optimizer.py`; before that the block was 2048)."""


def moment_bytes(
    optimizer: Optimizer, states: States, counts: Counts, *, flat: bool = False
) -> float:
    """Bytes of the optimizer's moments over all trained elements.

    `flat`: whether the engine gives the optimizer one flat tensor instead of the model's own, as
    ZeRO does; then bitsandbytes finds neither small tensors nor embeddings to keep in fp32, and
    Adafactor no rows and columns to sum over.
    Of a paged optimizer's, `paged_bytes` are in managed memory.
    """
    if optimizer.name in FACTORED:
        return 4 * (counts.trainable if flat else counts.factored)
    moments = MOMENTS[optimizer.name]
    if states.optimizer == "int8":
        wide = 0 if flat else min(counts.small + counts.tables, counts.trainable)
        return moments * (_EIGHT_BIT * (counts.trainable - wide) + 4 * wide)
    return moments * BYTES[states.optimizer] * counts.trainable


FACTORED: Final = ("adafactor", "adalomo")
"""Optimizers that keep sums of rows and columns, in fp32."""


def is_paged(optimizer: Optimizer) -> bool:
    """Whether the optimizer's moments are in managed memory."""
    return optimizer.name.startswith("paged_")


def paged_bytes(
    optimizer: Optimizer, states: States, sizes: Iterable[int], tables: int, *, flat: bool = False
) -> float:
    """Bytes of the moments that are in CUDA's managed memory.

    Those of tensors of 100,000 elements and more (bitsandbytes 0.50.2 `optim/optimizer.py`,
    `get_state_buffer`; an 8-bit moment's scales are not). The driver moves them to the host when
    the device runs short and back when they are touched, and torch's allocator never sees them
    (QLoRA, arXiv 2305.14314, section 3, "Paged Optimizers"). `sizes`: elements of each trained
    tensor; `tables`: of embedding tables, which 8-bit moments leave in fp32; `flat`: as of
    `moment_bytes`.
    """
    large = float(sum(size for size in sizes if size >= _PAGED_FROM))
    moments = MOMENTS[optimizer.name]
    if states.optimizer != "int8":
        return moments * BYTES[states.optimizer] * large
    wide = 0 if flat else min(tables, large)
    return moments * (large - wide + 4 * wide)


def in_backward_bytes(optimizer: Optimizer, states: States, elements: int) -> float:
    """Bytes that LOMO allocates while it steps a tensor, including the tensor's gradient.

    LOMO needs the gradient and the weight in fp32. AdaLOMO also needs the gradient's square and
    results of it, at most three tensors at once (lomo-optim 0.1.1 `fuse_update`). An fp32 tensor is
    not copied.
    """
    if optimizer.name == "adalomo":
        return 3 * MASTER_BYTES * elements
    return (1 if states.trainable == "fp32" else 2) * MASTER_BYTES * elements


_PAGED_FROM: Final = 100_000
"""Elements: "> 1 MB", as bitsandbytes has it."""


def step_bytes(
    optimizer: Optimizer,
    states: States,
    stepped: float,
    largest: int,
    torch: Version | None = None,
) -> float:
    """Bytes that the optimizer allocates while it steps over `stepped` elements.

    torch's foreach kernels hold one more copy of what they step (traced with torch 2.13,
    `torch/optim/adam.py`, `_multi_tensor_adam`: the denominators); the loop holds two of one tensor
    (`_single_tensor_adam`: a root and its quotient), the largest or, of ZeRO's flat parts, all that
    is stepped; fused and bitsandbytes kernels hold none. transformers' Adafactor takes each
    gradient and parameter in fp32, copies of what is not, and holds two tensors of its update at
    once (5.23 `optimization.py`, `Adafactor.step`). The optimizers' tests measure all of them.
    """
    size = MASTER_BYTES if states.master_weights else BYTES[states.trainable]
    if optimizer.name == "adafactor":
        tensors = 2 if size == MASTER_BYTES else 4
        return tensors * MASTER_BYTES * (largest or stepped)
    if optimizer.name in STEPS_IN_BACKWARD:
        return in_backward_bytes(optimizer, states, largest)
    if optimizer.name == "sgd":
        return 0
    if optimizer.kernel == "foreach":
        return size * stepped * (2 if (torch or _ADDS_IN_PLACE) < _ADDS_IN_PLACE else 1)
    return 2 * size * (largest or stepped) if optimizer.kernel == "loop" else 0


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
    """Gradients while the optimizer itself steps, when the gradients they were made from are freed.

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
    """Bytes of the moments that must be on the device at once: those of the tensor that is stepped.

    With 8-bit moments those of an embedding table are the largest, since they are in fp32.
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
    """Sizes when stage 1 or 2 computes the last of Muon's updates, and its bucket still exists."""
    last = working(found.largest, plan.gradient) - plan.gradient * found.widest
    return {
        **reduce_buckets(plan),
        "gradient partition": partition_buffer(plan),
        "updates": float(plan.gradient * found.own_matrices),
        "orthogonalisation": float(last),
    }


def _of_muon(plan: Sharding, found: Halves) -> Iterator[Sizes]:
    """Sizes at the moments of a step by Muon: for the norm, then for one half after the other."""
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
    """Gradients and their fp32 copies; DeepSpeed's own Adam also flattens the copies to one tensor.

    deepspeed 0.19.8 `runtime/fp16/fused_optimizer.py`, `FP16_Optimizer.step`, which
    `runtime/engine.py`, `_configure_fp16_optimizer`, uses only for FusedAdam, in bf16 as in fp16;
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
    """Gradients of one sub-group at a time, in fp32 and in the parameters' dtype."""
    group = min(elements / plan.shards, plan.zero.sub_group_size)
    if plan.gradient > plan.parameter:
        return {"fp32 gradients": MASTER_BYTES * group}
    return {
        "fp32 gradients": _fp32_gradients(plan, group),
        "averaged gradients": plan.gradient * group,
    }


def _fp32_gradients(plan: Sharding, elements: float) -> float:
    """Bytes of the fp32 copies of 16-bit gradients, which fp32 master weights require."""
    return (
        MASTER_BYTES * elements
        if plan.states.master_weights and plan.gradient < MASTER_BYTES
        else 0
    )


def optimizer_states(workload: Workload, plan: Sharding) -> Sizes:
    """Moments and master weights that exist from the first step to the last, in bytes."""
    if plan.optimizer_away:
        return {}
    moments = _moments(workload, plan) - paged_moments(workload, plan)
    return {"optimizer states": moments, "master weights": _masters(plan)}


def paged_moments(workload: Workload, plan: Sharding) -> float:
    """Bytes of one rank's moments in managed memory, wherever the driver currently has them."""
    if not is_paged(workload.optimizer) or plan.optimizer_away:
        return 0.0
    if plan.stage > 0:
        flat = (round(plan.shard(plan.whole.trainable, 1)),)
        return paged_bytes(workload.optimizer, plan.states, flat, 0, flat=True)
    sizes = trained_sizes(workload)
    return paged_bytes(workload.optimizer, plan.states, sizes, plan.whole.tables)


def _moments(workload: Workload, plan: Sharding) -> float:
    if plan.halves is not None:
        version = workload.version("deepspeed")
        return momenta(version, plan.halves, plan.stage, plan.shards, plan.gradient)
    return plan.shard(moments_of(workload, plan), 1)


def moments_of(workload: Workload, plan: Sharding) -> float:
    """Bytes of the optimizer's moments over all ranks; only torch's own follow the parameters."""
    if plan.halves is not None:
        return momenta(None, plan.halves, PARAMETERS if plan.stage else 0, 1, plan.gradient)
    follows = plan.states.optimizer != "int8" and workload.optimizer.name not in FACTORED
    counts = plan.counts if follows else plan.whole
    return moment_bytes(workload.optimizer, plan.states, counts, flat=plan.stage > 0)


def _masters(plan: Sharding) -> float:
    """Bytes of the copies of trained parameters that the optimizer steps.

    ZeRO always steps a copy of its partition, in fp32 unless `bf16_master_weights_and_grads` is set
    (deepspeed 0.19.8 `runtime/zero/stage_1_and_2.py`, `single_partition_of_fp32_groups`).
    """
    if plan.states.master_weights:
        return MASTER_BYTES * plan.shard(plan.counts.trainable, 1)
    if plan.stage > 0 and not plan.fsdp.version:
        return plan.parameter * plan.shard(plan.counts.trainable, 1)
    return 0
