"""Training state on the device by engine and ZeRO stage: what is kept, what comes and goes.

The figures for DeepSpeed are traced allocations of version 0.19.8 with real tensors, for worlds of
4, 8 and 64; `tests/analyses/memory/test_sharding.py` holds them. N is the number of ranks that
share the shards.
"""

from dataclasses import dataclass, replace
from typing import Final

from tunec.compiler.analyses.memory.counts import Counts, count, split
from tunec.compiler.analyses.memory.dtypes import BYTES
from tunec.compiler.analyses.memory.phase import Terms
from tunec.compiler.analyses.memory.states import MASTER_BYTES, moment_bytes, step_bytes
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.ir.slots import Parallel, States, Zero

_UNSHARDED_REDUCTION: Final = 500_000_000
"""Elements that stage 0 concatenates for one all-reduce (deepspeed 0.19.8 `runtime/engine.py`,
`MEMORY_OPT_ALLREDUCE_SIZE`)."""

GRADIENTS: Final = 2
PARAMETERS: Final = 3
"""The ZeRO stages from which gradients and parameters are sharded (optimizer states: 1)."""


@dataclass(frozen=True, slots=True)
class Sharding:
    """Everything that decides where training state lies."""

    counts: Counts
    """Elements of one rank; those trained beside adapters in the adapters' dtype."""
    whole: Counts
    """The same with every element counted once."""
    states: States
    zero: Zero
    stage: int
    """ZeRO stage; 0 without DeepSpeed."""
    deepspeed: bool
    ddp: bool
    shards: int
    """Ranks that share one set of shards."""
    accumulates: bool
    """Whether an optimizer step takes several micro batches."""

    @property
    def gradient(self) -> int:
        """Bytes of one accumulated gradient element."""
        return BYTES[self.states.gradients]

    @property
    def parameter(self) -> int:
        """Bytes of one trained element, and of its gradient as autograd makes it."""
        return BYTES[self.states.trainable]

    @property
    def optimizer_away(self) -> bool:
        """Whether the optimizer's states live on the host or on NVMe."""
        return self.deepspeed and self.stage > 0 and self.zero.offload_optimizer != "none"

    @property
    def parameters_away(self) -> bool:
        """Whether parameter shards live on the host or on NVMe; only stage 3 can."""
        return self.stage == PARAMETERS and self.zero.offload_param != "none"

    def shard(self, elements: float, from_stage: int) -> float:
        """Elements on one rank of something that is sharded from a stage on."""
        return elements / self.shards if self.stage >= from_stage else elements


def sharding(
    workload: Workload, parallel: Parallel, states: States, zero: Zero, *, accumulates: bool
) -> Sharding:
    """Gather what decides where training state lies."""
    deepspeed = parallel.engine == "deepspeed"
    counts = count(workload)
    whole = split(counts, parallel.tensor) if parallel.tensor > 1 else counts
    beside = workload.adapter.kind == "lora" and whole.trained and not deepspeed
    return Sharding(
        counts=in_adapter_dtype(whole, states) if beside else whole,
        whole=whole,
        states=states,
        zero=zero,
        stage=zero.stage if deepspeed else 0,
        deepspeed=deepspeed,
        ddp=parallel.engine == "ddp" and parallel.data > 1,
        shards=parallel.data * parallel.sequence,
        accumulates=accumulates,
    )


def in_adapter_dtype(counts: Counts, states: States) -> Counts:
    """Elements trained beside adapters, as so many of the adapters' dtype as take the same bytes.

    peft converts adapters to fp32, but leaves modules in `modules_to_save` in the base's dtype
    (peft 0.21 `tuners/tuners_utils.py`, `cast_adapter_dtype`); DeepSpeed converts all alike.
    """
    share = BYTES[states.weights] / BYTES[states.trainable]
    names = ("trained", "embedding", "head", "late", "experts")
    return replace(counts, **{name: round(share * getattr(counts, name)) for name in names})


def resident(workload: Workload, plan: Sharding) -> Terms:
    """Training state that is there from the first step to the last, in bytes."""
    terms: dict[str, float] = {}
    if not plan.optimizer_away:
        terms["optimizer states"] = _moments(workload, plan)
        terms["master weights"] = _masters(plan)
    terms["gradients"] = _resident_gradients(plan)
    terms["gradient buckets"] = _ddp_buckets(plan) + _stage3_bucket(plan)
    return terms


def _moments(workload: Workload, plan: Sharding) -> float:
    return plan.shard(moments_of(workload, plan), 1)


def moments_of(workload: Workload, plan: Sharding) -> float:
    """Bytes of the optimizer's moments over all ranks; only torch's own follow the parameters."""
    follows = plan.states.optimizer != "int8" and workload.optimizer.name != "adafactor"
    return moment_bytes(workload.optimizer, plan.states, plan.counts if follows else plan.whole)


def _masters(plan: Sharding) -> float:
    """Copies of the trained parameters that the optimizer steps.

    ZeRO always steps a copy of its partition, fp32 unless `bf16_master_weights_and_grads` is set
    (deepspeed 0.19.8 `runtime/zero/stage_1_and_2.py`, `single_partition_of_fp32_groups`).
    """
    if plan.states.master_weights:
        return MASTER_BYTES * plan.shard(plan.counts.trainable, 1)
    if plan.stage > 0:
        return plan.parameter * plan.shard(plan.counts.trainable, 1)
    return 0


def _accumulates_whole_fp32(plan: Sharding) -> bool:
    """Stage 1 with fp32 gradients of 16-bit parameters runs DeepSpeed's BF16_Optimizer."""
    return plan.stage == 1 and plan.gradient > plan.parameter


def _resident_gradients(plan: Sharding) -> float:
    """Gradients that are never freed: all of them under BF16_Optimizer, the shard at stage 3."""
    if plan.optimizer_away:
        return 0
    if _accumulates_whole_fp32(plan):
        return plan.gradient * plan.counts.trainable
    return plan.gradient * plan.shard(plan.counts.trainable, 3) if plan.stage == PARAMETERS else 0


def _ddp_buckets(plan: Sharding) -> float:
    """DistributedDataParallel reduces copies of all gradients, in buckets of 25 MiB.

    torch `nn/parallel/distributed.py`: without `gradient_as_bucket_view`, which neither
    transformers nor accelerate sets, buckets are memory of their own.
    """
    return plan.parameter * plan.counts.trainable if plan.ddp else 0


def _stage3_bucket(plan: Sharding) -> float:
    """Stage 3 allocates its reduce bucket once (`stage3.py`, `__ipg_bucket_flat_buffer`)."""
    return plan.parameter * plan.zero.reduce_bucket if plan.stage == PARAMETERS else 0


def kept_gradients(plan: Sharding) -> Terms:
    """Gradients of earlier micro batches that a forward pass finds, in bytes."""
    if not plan.accumulates or plan.optimizer_away or plan.stage == PARAMETERS:
        return {}
    if plan.stage == GRADIENTS:
        return {"accumulated gradients": plan.gradient * plan.counts.trainable / plan.shards}
    if _accumulates_whole_fp32(plan):
        return {}
    return {"gradients": float(plan.gradient * plan.counts.trainable)}


def reduce_buckets(plan: Sharding) -> Terms:
    """Contiguous buffers for gradients on their way at stages 1 and 2, in bytes.

    Allocated when a backward pass starts, each of the full bucket size however few parameters are
    trained; overlapping reduction and backward takes two (deepspeed 0.19.8
    `runtime/zero/stage_1_and_2.py`, `setup_buckets`).
    """
    if plan.stage not in (1, GRADIENTS) or not plan.zero.contiguous_gradients:
        return {}
    if _accumulates_whole_fp32(plan):
        return {}
    buffers = 2 if plan.zero.overlap_comm else 1
    return {"reduce buckets": float(buffers * plan.parameter * plan.zero.reduce_bucket)}


def backward_gradients(plan: Sharding) -> Terms:
    """Gradients and reduction buffers at the end of a backward pass, in bytes."""
    if plan.stage == 0:
        return _stage0_backward(plan)
    if plan.stage == 1:
        return {**reduce_buckets(plan), **_stage1_backward(plan)}
    if plan.stage == GRADIENTS:
        return {**reduce_buckets(plan), **_stage2_backward(plan)}
    return _stage3_backward(plan)


def _stage0_backward(plan: Sharding) -> Terms:
    """All gradients, and what DeepSpeed concatenates for their all-reduce."""
    terms = {"gradients": float(plan.gradient * plan.counts.trainable)}
    if plan.deepspeed:
        terms["gradient all-reduce"] = float(plan.parameter * reduction_elements(plan.counts))
    return terms


def reduction_elements(counts: Counts) -> int:
    """Elements that stage 0 concatenates at once, after the last backward pass."""
    return min(counts.trainable, _UNSHARDED_REDUCTION)


def _stage1_backward(plan: Sharding) -> Terms:
    trainable = plan.counts.trainable
    if _accumulates_whole_fp32(plan):
        return {
            "new gradients": float(plan.parameter * trainable),
            "gradient all-reduce": float(plan.parameter * trainable),
        }
    return {
        "gradients": float(plan.gradient * trainable),
        "gradient partition": plan.gradient * trainable / plan.shards,
    }


def _stage2_backward(plan: Sharding) -> Terms:
    """One partition as it arrives; to accumulate, or in fp32, a second to add it to."""
    elements = plan.counts.trainable / plan.shards
    terms = {"largest gradient": float(plan.parameter * plan.counts.largest)}
    if plan.optimizer_away:
        return terms
    terms["gradient partition"] = plan.parameter * elements
    if plan.accumulates or plan.gradient > plan.parameter:
        terms["accumulated gradients"] = plan.gradient * elements
    return terms


def _stage3_backward(plan: Sharding) -> Terms:
    """The whole gradient of one parameter, before it is scattered."""
    return {"largest gradient": float(plan.parameter * plan.counts.largest)}


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
        return {"gradients": float(gradient * trainable)} if plan.stage == 1 else {}
    if plan.stage == PARAMETERS:
        return _stage3_step(plan)
    if _accumulates_whole_fp32(plan):
        return {"new gradients": plan.parameter * trainable}
    if gradient > plan.parameter:
        return {"accumulated gradients": gradient * trainable / plan.shards}
    return {
        "gradient partition": gradient * trainable / plan.shards,
        "averaged gradients": gradient * trainable / plan.shards,
        "fp32 gradients": _fp32_gradients(plan, trainable / plan.shards),
    }


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
