"""Training state on the device by engine and ZeRO stage: what is kept, what comes and goes.

The figures for DeepSpeed are traced allocations of version 0.19.8 with real tensors, for worlds of
4, 8 and 64; `tests/analyses/memory/test_sharding.py` holds them. N is the number of ranks that
share the shards.
"""

from typing import Final

from packaging.version import Version

from tunec.compiler.analyses.memory.counts import Counts, count
from tunec.compiler.analyses.memory.dtypes import BYTES
from tunec.compiler.analyses.memory.muon import Halves, gathers, halves, momenta
from tunec.compiler.analyses.memory.partition import (
    NO_PARTITION,
    Partition,
    largest_partition,
    trained_sizes,
)
from tunec.compiler.analyses.memory.reductions import (
    Reduction,
    Reductions,
    reductions,
    reductions_at_end,
)
from tunec.compiler.analyses.memory.states import (
    FACTORED,
    MASTER_BYTES,
    is_paged,
    moment_bytes,
    paged_bytes,
)
from tunec.compiler.analyses.memory.timeline import Sizes
from tunec.compiler.analyses.memory.workload import NO_FSDP, Layout, Workload
from tunec.compiler.ir.caches import cached
from tunec.compiler.ir.slots import Fsdp, Parallel, States, Zero
from tunec.schemas.frozen import dataclass
from tunec.schemas.terms import STEPS_IN_BACKWARD

GRADIENTS: Final = 2
PARAMETERS: Final = 3
"""The ZeRO stages from which gradients and parameters are sharded (optimizer states: 1)."""


_LEAVES: Final = frozenset({"mixtral", "qwen2_moe", "qwen3_moe"})
_KNOWS_LEAVES: Final = Version("0.18.0")
"""Families whose block of experts DeepSpeed gathers as one without being told, and since when
(`runtime/zero/leaf_module_config.py`, `DEFAULT_LEAF_MODULE_CLASSES`)."""


@dataclass(frozen=True, slots=True, eq=False)
class Sharding:
    """Everything that decides where training state lies; made once for equal facts (`sharding`)."""

    workload: Workload
    counts: Counts
    """Elements of one rank; those trained beside adapters in the adapters' dtype."""
    whole: Counts
    """Elements of one rank, each counted once, whatever its dtype."""
    states: States
    zero: Zero
    stage: int
    """ZeRO stage; 3 where FSDP shards, 0 without either."""
    deepspeed: bool
    ddp: bool
    shards: int
    """Ranks that share one set of shards."""
    accumulates: bool
    """Whether an optimizer step takes several micro batches."""
    in_groups: bool = False
    """Whether ranks share layers or sequences: then stage 1 is counted reduction by reduction."""
    widens: bool = False
    """Whether 16-bit gradients are summed over the ranks in fp32, as those of parts of a sequence
    are (deepspeed 0.19.8 `runtime/zero/stage_1_and_2.py`, `allreduce_bucket`)."""
    partition: Partition = NO_PARTITION
    """What the rank with the largest gradients of its own keeps at stages 1 and 2."""
    leaf: int = 0
    """Elements of the largest module whose parameters stage 3 gathers together."""
    fsdp: Fsdp = NO_FSDP
    halves: Halves | None = None
    """What Muon steps of what is trained, and what Adam; None: another optimizer."""

    @property
    def releases(self) -> bool:
        """Whether each gradient is stepped and let go of when the next has come."""
        return self.workload.optimizer.name in STEPS_IN_BACKWARD

    @property
    def reductions(self) -> tuple[Reduction, ...]:
        """Where gradients are reduced as they come: the reductions that can be highest."""
        if self.fsdp.version or not is_hooked(self):
            return ()
        return self._on_the_way.highest

    @property
    def holds(self) -> bool:
        """Whether a rank has reduced gradients of its own before the last reduction."""
        return self._on_the_way.holds

    @property
    def _on_the_way(self) -> Reductions:
        how = {"blocks": self.leaf > 0, "apart": self.adds_in_fp32}
        return reductions(
            self.workload, self.zero.reduce_bucket, self.partition, self.shards, **how
        )

    @property
    def adds_in_fp32(self) -> bool:
        """Whether stage 2 adds a rank's 16-bit gradients to an fp32 part of its own.

        Each is widened for the sum, one after the other (deepspeed 0.19.8
        `runtime/zero/stage_1_and_2.py`, `_add_to_grad_partition_buffer`; traced).
        """
        away = self.optimizer_away or self.halves is not None
        return self.stage == GRADIENTS and self.gradient > self.parameter and not away

    @property
    def reductions_at_end(self) -> tuple[Reduction, ...]:
        """The reductions where gradients wait until all are there and are reduced at the end."""
        return reductions_at_end(self.workload, self.zero.reduce_bucket, self.partition)

    @property
    def gradient(self) -> int:
        """Bytes of one accumulated gradient element."""
        return BYTES[self.states.gradients]

    @property
    def parameter(self) -> int:
        """Bytes of one trained element, and of its gradient as autograd makes it."""
        return BYTES[self.states.trainable]

    @property
    def wanting(self) -> tuple[int, int]:
        """Elements that want a gradient, whether or not one comes: in modules, and in adapters."""
        counts = self.counts
        return counts.trained + counts.resting, counts.adapters + counts.resting_adapters

    @property
    def arriving(self) -> int:
        """Elements whose gradients a backward pass brings."""
        return self.counts.trainable - self.counts.idle

    @property
    def optimizer_away(self) -> bool:
        """Whether the optimizer's states live on the host or on NVMe."""
        if self.fsdp.offload_params:
            return True
        return self.deepspeed and self.stage > 0 and self.zero.offload_optimizer != "none"

    @property
    def parameters_away(self) -> bool:
        """Whether parameter shards live on the host or on NVMe; only stage 3 can."""
        if self.fsdp.offload_params:
            return True
        return self.stage == PARAMETERS and self.zero.offload_param != "none"

    def shard(self, elements: float, from_stage: int) -> float:
        """Elements on one rank of something that is sharded from a stage on."""
        return elements / self.shards if self.stage >= from_stage else elements


@cached(4096)
def sharding(
    workload: Workload,
    parallel: Parallel,
    states: States,
    zero: Zero,
    *,
    accumulates: bool,
    fsdp: Fsdp = NO_FSDP,
    nodes: int = 1,
) -> Sharding:
    """Gather what decides where training state lies; `nodes`: over which the ranks are spread.

    `workload`: as one rank has it (`tensor_parallel.of_rank`).
    """
    deepspeed = parallel.engine == "deepspeed"
    whole = count(workload)
    beside = workload.adapter.kind == "lora" and whole.trained and not deepspeed
    stage, shards = zero.stage if deepspeed else 0, parallel.data * parallel.sequence
    if fsdp.version:
        # accelerate makes all that is trained fp32, an adapter's companions too
        beside, stage = False, 0 if fsdp.sharding == "none" else PARAMETERS
        shards = max(shards // nodes, 1) if fsdp.sharding == "hybrid" else shards
    muon = halves(workload, shards) if workload.optimizer.name == "muon" else None
    partition = NO_PARTITION
    if 0 < stage < PARAMETERS:
        partition = muon.own if muon else largest_partition(workload, shards)
    return Sharding(
        workload=workload,
        counts=in_adapter_dtype(workload, states) if beside else whole,
        whole=whole,
        states=states,
        zero=zero,
        stage=stage,
        deepspeed=deepspeed,
        ddp=parallel.engine == "ddp" and parallel.data > 1,
        shards=shards,
        accumulates=accumulates,
        in_groups=parallel.tensor * parallel.sequence > 1,
        widens=parallel.sequence > 1 and states.trainable != "fp32",
        partition=partition,
        leaf=whole.block if deepspeed and _gathers_blocks(workload, zero) else 0,
        fsdp=fsdp,
        halves=muon,
    )


def sharding_of(workload: Workload, layout: Layout, *, accumulates: bool) -> Sharding:
    """What decides where training state lies, taken from a layout."""
    return sharding(
        workload,
        layout.parallel,
        layout.states,
        layout.zero,
        accumulates=accumulates,
        fsdp=layout.fsdp,
        nodes=layout.islands,
    )


def _gathers_blocks(workload: Workload, zero: Zero) -> bool:
    """Whether a block of experts is one unit for stage 3: named so, or among DeepSpeed's own."""
    if zero.stage < PARAMETERS:
        return False
    if zero.leaf_modules is not None:
        return bool(zero.leaf_modules)
    version = workload.version("deepspeed")
    knows = version is None or version >= _KNOWS_LEAVES
    return knows and workload.architecture.family in _LEAVES


def is_hooked(plan: Sharding) -> bool:
    """Whether gradients are reduced, and let go, as they come.

    Stage 1 lets go of those only that were copied to the bucket.
    """
    if plan.stage == 1:
        hooked = plan.zero.overlap_comm and plan.zero.contiguous_gradients and not plan.accumulates
        return hooked and not accumulates_whole_fp32(plan)
    return plan.stage >= GRADIENTS


def in_adapter_dtype(workload: Workload, states: States) -> Counts:
    """Elements trained beside adapters, as so many of the adapters' dtype as take the same bytes.

    peft converts adapters to fp32, but leaves modules in `modules_to_save` in the base's dtype
    (peft 0.21 `tuners/tuners_utils.py`, `cast_adapter_dtype`); DeepSpeed converts all alike.
    """
    return count(workload, BYTES[states.weights] / BYTES[states.trainable])


def resident(workload: Workload, plan: Sharding) -> Sizes:
    """Training state that is there from the first step to the last, in bytes."""
    terms: dict[str, float] = {}
    if not plan.optimizer_away:
        terms["optimizer states"] = _moments(workload, plan) - paged_moments(workload, plan)
        terms["master weights"] = _masters(plan)
    terms["gradients"] = _resident_gradients(plan)
    if plan.halves is not None and plan.stage == PARAMETERS:
        found = gathers(workload, plan.shards, plan.zero.reduce_bucket, plan.gradient)
        terms["gathering buffers kept"] = found.kept
    terms["gradient buckets"] = _ddp_buckets(plan) + _stage3_bucket(plan) + _offload_buffer(plan)
    return terms


def paged_moments(workload: Workload, plan: Sharding) -> float:
    """Bytes of one rank's moments in managed memory, wherever the driver has them at a time."""
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
    """Copies of the trained parameters that the optimizer steps.

    ZeRO always steps a copy of its partition, fp32 unless `bf16_master_weights_and_grads` is set
    (deepspeed 0.19.8 `runtime/zero/stage_1_and_2.py`, `single_partition_of_fp32_groups`).
    """
    if plan.states.master_weights:
        return MASTER_BYTES * plan.shard(plan.counts.trainable, 1)
    if plan.stage > 0 and not plan.fsdp.version:
        return plan.parameter * plan.shard(plan.counts.trainable, 1)
    return 0


def accumulates_whole_fp32(plan: Sharding) -> bool:
    """Stage 1 with fp32 gradients of 16-bit parameters runs DeepSpeed's BF16_Optimizer."""
    return plan.stage == 1 and plan.gradient > plan.parameter


def _resident_gradients(plan: Sharding) -> float:
    """Gradients that are never freed: all of them under BF16_Optimizer, the shard at stage 3."""
    if plan.optimizer_away or plan.fsdp.version:
        return 0
    if accumulates_whole_fp32(plan):
        return plan.gradient * plan.counts.trainable
    return plan.gradient * plan.shard(plan.counts.trainable, 3) if plan.stage == PARAMETERS else 0


def _ddp_buckets(plan: Sharding) -> float:
    """DistributedDataParallel reduces copies of all gradients, in buckets of 25 MiB.

    torch `nn/parallel/distributed.py`: without `gradient_as_bucket_view`, which neither
    transformers nor accelerate sets, buckets are memory of their own.
    """
    return plan.parameter * sum(plan.wanting) if plan.ddp else 0


def _stage3_bucket(plan: Sharding) -> float:
    """Stage 3 allocates its reduce bucket once (`stage3.py`, `__ipg_bucket_flat_buffer`)."""
    has = plan.stage == PARAMETERS and not plan.fsdp.version
    size = BYTES["fp32"] if plan.widens else plan.parameter
    return size * plan.zero.reduce_bucket if has else 0


def _offload_buffer(plan: Sharding) -> float:
    """Room for the largest gradient on its way to the host, at stages 1 and 2.

    deepspeed 0.19.8 `runtime/zero/stage_1_and_2.py`, `temp_grad_buffer_for_gpu_offload`.
    """
    away = plan.optimizer_away and plan.stage < PARAMETERS
    return float(plan.parameter * plan.counts.largest) if away else 0
