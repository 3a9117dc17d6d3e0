"""Training state on the device by engine and ZeRO stage: kept tensors and temporary ones.

The figures for DeepSpeed are traced allocations of version 0.19.8 with real tensors, for worlds of
4, 8 and 64; `tests/analyses/memory/test_sharding.py` checks them. N is the number of ranks that
share the shards.
"""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct
from packaging.version import Version

from tunec.compiler.analyses.memory.counts import Counts, count
from tunec.compiler.analyses.memory.modules import BYTES, experts_apart
from tunec.compiler.analyses.memory.muon import Halves, halves
from tunec.compiler.analyses.memory.partitions import NO_PARTITION, Partition, largest_partitions
from tunec.compiler.analyses.memory.reductions import (
    Keeps,
    Reduction,
    Reductions,
    reductions,
    reductions_at_end,
)
from tunec.compiler.analyses.memory.timeline import Sizes
from tunec.compiler.analyses.memory.workload import NO_FSDP, Layout, Workload
from tunec.compiler.ir.slots import Fsdp, Parallel, States, Zero
from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Stack
from tunec.schemas.terms import STEPS_IN_BACKWARD

GRADIENTS: Final = 2
PARAMETERS: Final = 3
"""The ZeRO stages from which gradients and parameters are sharded (optimizer states: 1)."""


_LEAVES: Final = frozenset({"mixtral", "qwen2_moe", "qwen3_moe"})
_LEAF_LAYERS: Final = frozenset({"Qwen3MoeDecoderLayer"})
"""The layers of such a block as the text of another family, InternVL 3.5's."""
_KNOWS_LEAVES: Final = Version("0.18.0")
"""Families whose block of experts DeepSpeed gathers as one without being told, and since when
(`runtime/zero/leaf_module_config.py`, `DEFAULT_LEAF_MODULE_CLASSES`)."""


class Sharding(Struct, frozen=True, eq=False):
    """What decides where training state is; equal facts give the same object (`sharding`)."""

    workload: Workload
    counts: Counts
    """Elements of one rank; those trained beside adapters in the adapters' dtype."""
    whole: Counts
    """Elements of one rank, each counted once, whatever its dtype."""
    states: States
    zero: Zero
    stage: int
    """ZeRO stage; 3 if FSDP shards, 0 without either."""
    deepspeed: bool
    ddp: bool
    shards: int
    """Ranks that share one set of shards."""
    accumulates: bool
    """Whether an optimizer step takes several micro batches."""
    adds_unreduced: bool = False
    """Whether unreduced gradients are added to earlier ones (`Layout.adds_unreduced`)."""
    in_groups: bool = False
    """Whether ranks share layers or sequences: then stage 1 is counted reduction by reduction."""
    widens: bool = False
    """Whether 16-bit gradients are summed over the ranks in fp32, as those of parts of a sequence
    are (deepspeed 0.19.8 `runtime/zero/stage_1_and_2.py`, `allreduce_bucket`)."""
    partition: Partition = NO_PARTITION
    """The part of the rank that is looked at, at stages 1 and 2 (`as_ranks`)."""
    leaf: int = 0
    """Elements of the largest module whose parameters stage 3 gathers together."""
    lets_go: bool = False
    """Whether frozen parameters are released within a layer's backward pass after they were used to
    recompute it: torch's reentrant variant recomputes before that (`fetches`)."""
    fsdp: Fsdp = NO_FSDP
    halves: Halves | None = None
    """The elements that Muon updates, and those that Adam updates; None: another optimizer."""

    @property
    def releases(self) -> bool:
        """Whether each gradient is applied and freed when the next one is made."""
        return self.workload.optimizer.name in STEPS_IN_BACKWARD

    @property
    def reductions(self) -> tuple[Reduction, ...]:
        """Reductions that can be the highest, if gradients are reduced while they are made."""
        if self.fsdp.version or not is_hooked(self):
            return ()
        return self._on_the_way.highest

    def holds(self, left: float) -> bool:
        """Whether a rank has reduced gradients of its own part when this share of layers is left.

        Or, if it is below 0, after all layers, when the last gradient comes.
        """
        return self._on_the_way.holds_from >= left

    @property
    def holds_in_last_layer(self) -> bool:
        """Whether it has them before those of the last layer are all made."""
        return self.holds(self._on_the_way.last_layer)

    @property
    def left_to_encoder(self) -> float:
        """The share of layers that are left when a decoder is done; 0: there is no encoder."""
        model = self.workload.architecture
        if model.kind != "encoder-decoder":
            return 0.0
        decoding = sum(stack.layers for stack in model.stacks if stack.cross_attention)
        return 1 - decoding / sum(stack.layers for stack in model.stacks)

    @property
    def _on_the_way(self) -> Reductions:
        return reductions(
            self.workload,
            self.zero.reduce_bucket,
            self.partition,
            self.shards,
            blocks=self.leaf > 0,
            apart=self.adds_in_fp32,
            keeps=self.keeps,
        )

    @property
    def keeps(self) -> Keeps:
        """The gradients larger than the bucket that stay until a pass is over (`oversized_terms`).

        If gradients are reduced while they are made.
        """
        if self.stage == 1:
            return "others"
        return "own" if self.adds_in_fp32 else "none"

    @property
    def kept(self) -> int:
        """Elements that these come to, without the last gradient."""
        return self._on_the_way.kept if is_hooked(self) and not self.fsdp.version else 0

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
        """The reductions, if gradients are reduced after all of them are made."""
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
        """Elements that require a gradient, even if they get none: in modules, and in adapters."""
        counts = self.counts
        return counts.trained + counts.resting, counts.adapters + counts.resting_adapters

    @property
    def arriving(self) -> int:
        """Elements that get a gradient in a backward pass."""
        return self.counts.trainable - self.counts.idle

    @property
    def optimizer_away(self) -> bool:
        """Whether the optimizer's states are on the host or on NVMe."""
        if self.fsdp.offload_params:
            return True
        return self.deepspeed and self.stage > 0 and self.zero.offload_optimizer != "none"

    @property
    def parameters_away(self) -> bool:
        """Whether parameter shards are on the host or on NVMe; only stage 3 supports this."""
        if self.fsdp.offload_params:
            return True
        return self.stage == PARAMETERS and self.zero.offload_param != "none"

    def shard(self, elements: float, from_stage: int) -> float:
        """Elements on one rank of a tensor that is sharded from this stage on."""
        return elements / self.shards if self.stage >= from_stage else elements


@cached(4096)
def sharding(
    workload: Workload,
    parallel: Parallel,
    states: States,
    zero: Zero,
    *,
    accumulates: bool,
    adds_unreduced: bool = False,
    fsdp: Fsdp = NO_FSDP,
    nodes: int = 1,
    reentrant: bool = False,
) -> Sharding:
    """Collect what decides where training state is; `nodes`: the number of nodes of the ranks.

    `reentrant`: whether torch's reentrant variant recomputes, if layers are recomputed. `workload`:
    as one rank has it (`tensor_parallel.of_rank`).
    """
    deepspeed = parallel.engine == "deepspeed"
    whole = count(workload)
    beside = has_narrow_companions(workload) and not deepspeed
    stage, shards = zero.stage if deepspeed else 0, parallel.data * parallel.sequence
    if fsdp.version:
        # accelerate makes all that is trained fp32, an adapter's companions too
        beside, stage = False, 0 if fsdp.sharding == "none" else PARAMETERS
        shards = max(shards // nodes, 1) if fsdp.sharding == "hybrid" else shards
    muon = halves(workload, shards) if workload.optimizer.name == "muon" else None
    partition = NO_PARTITION
    if 0 < stage < PARAMETERS:
        partition = muon.own if muon else largest_partitions(workload, shards)[0]
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
        adds_unreduced=adds_unreduced,
        in_groups=parallel.tensor * parallel.sequence > 1,
        widens=parallel.sequence > 1 and states.trainable != "fp32",
        partition=partition,
        leaf=whole.block if deepspeed and gathers_blocks(workload, zero) else 0,
        lets_go=workload.adapter.kind != "none" and not reentrant,
        fsdp=fsdp,
        halves=muon,
    )


def sharding_of(workload: Workload, layout: Layout, *, accumulates: bool) -> Sharding:
    """What decides where training state is, for a layout."""
    return sharding(
        workload,
        layout.parallel,
        layout.states,
        layout.zero,
        accumulates=accumulates,
        adds_unreduced=layout.adds_unreduced,
        fsdp=layout.fsdp,
        nodes=layout.islands,
        reentrant=layout.activation_checkpointing.reentrant,
    )


@cached(4096)
def as_ranks(plan: Sharding) -> tuple[Sharding, ...]:
    """A plan as it is on each of the ranks of which one needs the most memory.

    They differ at stages 1 and 2, where a rank's part decides how large its buffer is and from when
    on it has it. The one with the largest step comes first.
    """
    if plan.partition is NO_PARTITION or plan.halves is not None:
        return (plan,)
    in_pass = is_hooked(plan)
    parts = largest_partitions(
        plan.workload,
        plan.shards,
        in_pass=in_pass,
        staying=plan.zero.reduce_bucket if in_pass and plan.keeps == "others" else None,
        sums=plan.adds_in_fp32,
    )
    return (plan, *(replace(plan, partition=part) for part in parts[1:]))


def gathers_blocks(workload: Workload, zero: Zero) -> bool:
    """Whether a block of experts is one unit for stage 3: named so, or on DeepSpeed's list."""
    if zero.stage < PARAMETERS:
        return False
    if zero.leaf_modules is not None:
        return bool(zero.leaf_modules)
    version = workload.version("deepspeed")
    knows = version is None or version >= _KNOWS_LEAVES
    model = workload.architecture
    return knows and (model.family in _LEAVES or not _LEAF_LAYERS.isdisjoint(model.layer_classes))


def gathers_twice(workload: Workload, zero: Zero) -> bool:
    """Whether stage 3 has frozen experts twice in the pass that recomputes them (`fetches`).

    They run before shared experts, within whose backward pass torch's own variant recomputes.
    """
    shared = any(stack.experts and stack.experts.shared_ffn for stack in _text(workload))
    frozen = zero.stage == PARAMETERS and workload.adapter.kind != "none"
    return frozen and shared and not experts_apart(workload) and not gathers_blocks(workload, zero)


def _text(workload: Workload) -> Iterator[Stack]:
    return (stack for stack in workload.architecture.stacks if stack.part == "text")


def is_hooked(plan: Sharding) -> bool:
    """Whether gradients are reduced and freed while they are made.

    Stage 1 frees only those that were copied to the bucket.
    """
    if plan.stage == 1:
        hooked = plan.zero.overlap_comm and plan.zero.contiguous_gradients and not plan.accumulates
        return hooked and not accumulates_whole_fp32(plan)
    return plan.stage >= GRADIENTS


def has_narrow_companions(workload: Workload) -> bool:
    """Whether what is trained beside adapters keeps the base's dtype, as PEFT leaves it.

    LLaMA-Factory makes fp32 of every trained parameter (0.9.1 to 0.9.5 model/adapter.py
    `init_adapter`, `cast_trainable_params_to_fp32`).
    """
    is_beside = workload.adapter.kind == "lora" and count(workload).trained > 0
    return is_beside and workload.version("llamafactory") is None


def in_adapter_dtype(workload: Workload, states: States) -> Counts:
    """Elements trained beside adapters, converted by bytes to the adapters' dtype.

    peft converts adapters to fp32, but leaves modules in `modules_to_save` in the base's dtype
    (peft 0.21 `tuners/tuners_utils.py`, `cast_adapter_dtype`); DeepSpeed converts all alike.
    """
    return count(workload, BYTES[states.weights] / BYTES[states.trainable])


def accumulates_whole_fp32(plan: Sharding) -> bool:
    """Stage 1 with fp32 gradients of 16-bit parameters runs DeepSpeed's BF16_Optimizer."""
    return plan.stage == 1 and plan.gradient > plan.parameter


def waiting_gradient(plan: Sharding) -> tuple[str, int]:
    """The name of a gradient that autograd made while it waits, and its bytes per element.

    BF16_Optimizer adds it to one in fp32, and only zeroes it before the next backward pass
    (deepspeed 0.19.8 `runtime/bf16_optimizer.py`, `backward_prologue`).
    """
    whole = accumulates_whole_fp32(plan)
    return ("new gradients", plan.parameter) if whole else ("gradients", plan.gradient)


def reduce_buckets(plan: Sharding) -> Sizes:
    """Contiguous buffers for gradients that are being reduced at stages 1 and 2, in bytes.

    Allocated when the first gradient of a backward pass is made, each of the full bucket size
    however few parameters are trained; overlapping reduction and backward takes two (deepspeed
    0.19.8 `runtime/zero/stage_1_and_2.py`, `setup_buckets`).
    """
    if plan.stage not in (1, GRADIENTS) or not plan.zero.contiguous_gradients:
        return {}
    if accumulates_whole_fp32(plan):
        return {}
    buffers = 2 if plan.zero.overlap_comm else 1
    return {"reduce buckets": float(buffers * plan.parameter * plan.zero.reduce_bucket)}


def partition_buffer(plan: Sharding) -> float:
    """Bytes of the reduced gradients of one rank's own part, in the parameters' dtype.

    fp32 accumulation of 16-bit gradients at stage 2 adds pieces to a part of its own instead
    (`_use_compact_grad_partition_buffer`).
    """
    return float(plan.parameter * plan.partition.elements)
