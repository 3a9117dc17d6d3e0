"""Relations that must hold between decided slots; contradicting pins break them."""

from collections.abc import Callable, Iterator

from msgspec import Struct

from tunec.compiler.ir.plan import Plan
from tunec.schemas.objective_facts import OBJECTIVES, ObjectiveFacts
from tunec.schemas.terms import BESIDE_TRAINING


class Invariant(Struct, frozen=True):
    """A relation between slots, as a sentence and as a test."""

    slots: tuple[str, ...]
    text: str
    holds: Callable[[Plan], bool]


def _facts(plan: Plan) -> ObjectiveFacts:
    """What sets a plan's objective apart."""
    return OBJECTIVES[plan.objective.kind]


def _recomputes_each(plan: Plan) -> bool:
    """Whether recomputation, if there is any, goes layer by layer."""
    asked = plan.activation_checkpointing
    return asked.segment == 1 and asked.gap == 0


INVARIANTS = (
    Invariant(
        ("data.limits", "data.train", "data.more"),
        "data.limits has a number for each data set, or none at all",
        lambda p: (
            len(p.data.limits) in (0, 1 + len(p.data.more)) and min(p.data.limits, default=0) >= 0
        ),
    ),
    Invariant(
        ("batch.global", "batch.micro", "batch.accumulation", "parallel.data"),
        "batch.global is micro x accumulation x data parallel width",
        lambda p: p.batch.global_ == p.batch.micro * p.batch.accumulation * p.parallel.data,
    ),
    Invariant(
        ("parallel.world", "parallel.data", "parallel.tensor", "parallel.sequence"),
        "parallel.world is data x tensor x sequence parallel width",
        lambda p: p.parallel.world == p.parallel.data * p.parallel.tensor * p.parallel.sequence,
    ),
    Invariant(
        ("parallel.world", "devices.nodes", "devices.per_node"),
        "there is a device for each process",
        lambda p: p.parallel.world <= p.devices.nodes * p.devices.per_node,
    ),
    Invariant(
        ("precision.compute", "precision.loss_scaling"),
        "loss scaling is dynamic exactly with fp16",
        lambda p: (p.precision.compute == "fp16") == (p.precision.loss_scaling == "dynamic"),
    ),
    Invariant(
        ("zero.stage", "parallel.engine"),
        "only DeepSpeed has a ZeRO stage",
        lambda p: p.zero.stage == 0 or p.parallel.engine == "deepspeed",
    ),
    Invariant(
        ("zero.offload_param", "zero.stage"),
        "parameters are offloaded at stage 3 only",
        lambda p: p.zero.offload_param == "none" or p.zero.stage == 3,
    ),
    Invariant(
        ("zero.offload_optimizer", "zero.stage"),
        "optimizer states are offloaded from stage 1 up",
        lambda p: p.zero.offload_optimizer == "none" or p.zero.stage >= 1,
    ),
    Invariant(
        ("zero.hpz_partition", "zero.stage", "parallel.data"),
        "a second set of shards is for stage 3, and divides the data parallel width",
        lambda p: (
            p.zero.hpz_partition == 1
            or (p.zero.stage == 3 and p.parallel.data % max(p.zero.hpz_partition, 1) == 0)
        ),
    ),
    Invariant(
        ("zero.leaf_modules", "zero.stage"),
        "modules are gathered together at stage 3 only",
        lambda p: p.zero.leaf_modules is None or p.zero.stage == 3,
    ),
    Invariant(
        ("fsdp.version", "parallel.engine"),
        "FSDP has a version exactly where it is the engine",
        lambda p: (p.fsdp.version > 0) == (p.parallel.engine == "fsdp"),
    ),
    Invariant(
        ("fsdp.sharding", "fsdp.version"),
        "FSDP 2 shards fully or, with grad_op, after the backward pass",
        lambda p: p.fsdp.version < 2 or p.fsdp.sharding in ("full", "grad_op"),
    ),
    Invariant(
        ("fsdp.sharding", "parallel.engine"),
        "only FSDP has its sharding",
        lambda p: p.fsdp.sharding == "none" or p.parallel.engine == "fsdp",
    ),
    Invariant(
        ("fsdp.offload_params", "parallel.engine"),
        "only FSDP has its offload",
        lambda p: not p.fsdp.offload_params or p.parallel.engine == "fsdp",
    ),
    Invariant(
        ("fsdp.wrap", "fsdp.wrap_classes", "fsdp.min_parameters"),
        "classes go with units by transformer layer, a least size with units by size",
        lambda p: (
            (not p.fsdp.wrap_classes or p.fsdp.wrap == "transformer")
            and (p.fsdp.min_parameters == 0 or p.fsdp.wrap == "size")
        ),
    ),
    Invariant(
        ("fsdp.checkpointing", "activation_checkpointing.mode", "parallel.engine"),
        "FSDP recomputes layers only where it is the engine and layers are recomputed",
        lambda p: (
            not p.fsdp.checkpointing
            or (p.parallel.engine == "fsdp" and p.activation_checkpointing.mode == "layer")
        ),
    ),
    Invariant(
        ("fsdp.checkpointing", "activation_checkpointing.reentrant"),
        "FSDP's own recomputation is not reentrant",
        lambda p: not p.fsdp.checkpointing or not p.activation_checkpointing.reentrant,
    ),
    Invariant(
        ("activation_checkpointing.segment", "activation_checkpointing.gap"),
        "a segment has a layer at least, and a gap may have none",
        lambda p: p.activation_checkpointing.segment >= 1 and p.activation_checkpointing.gap >= 0,
    ),
    Invariant(
        (
            "activation_checkpointing.segment",
            "activation_checkpointing.gap",
            "activation_checkpointing.mode",
            "fsdp.checkpointing",
        ),
        "layers are recomputed in segments where the model recomputes layers",
        lambda p: (
            _recomputes_each(p)
            or (p.activation_checkpointing.mode == "layer" and not p.fsdp.checkpointing)
        ),
    ),
    Invariant(
        ("activation_checkpointing.offload", "activation_checkpointing.mode"),
        "what waits in host RAM are the inputs of recomputed layers",
        lambda p: (
            not p.activation_checkpointing.offload or p.activation_checkpointing.mode == "layer"
        ),
    ),
    Invariant(
        ("fsdp.forward_prefetch", "fsdp.version"),
        "only FSDP 1 has a setting to gather ahead in the forward pass",
        lambda p: not p.fsdp.forward_prefetch or p.fsdp.version == 1,
    ),
    Invariant(
        ("adapter.kind", "adapter.rank"),
        "adapters have a rank of 1 at least",
        lambda p: p.adapter.kind == "none" or p.adapter.rank >= 1,
    ),
    Invariant(
        ("quantization.format", "adapter.kind"),
        "a quantised base is trained through adapters",
        lambda p: p.quantization.format == "none" or p.adapter.kind != "none",
    ),
    Invariant(
        ("objective.kind", "objective.reference"),
        "a pair of answers needs a reference, given texts have none",
        lambda p: _facts(p).generates or _facts(p).compares == (p.objective.reference != "none"),
    ),
    Invariant(
        ("objective.kind", "objective.beta", "objective.reference"),
        "rewarded answers have a reference exactly where its weight is above 0",
        lambda p: (
            not _facts(p).generates
            or (p.objective.beta > 0) == (p.objective.reference in ("resident", "base"))
        ),
    ),
    Invariant(
        ("objective.reference", "adapter.kind"),
        "the reference is the base with its adapters off, or there are no adapters",
        lambda p: p.objective.reference != "base" or p.adapter.kind != "none",
    ),
    Invariant(
        ("objective.kind", "generation.engine"),
        "answers are written exactly where they are rewarded",
        lambda p: _facts(p).generates == (p.generation.engine != "none"),
    ),
    Invariant(
        ("objective.kind", "generation.samples"),
        "a prompt has an answer, which is compared with at least one other in a group",
        lambda p: not _facts(p).generates or p.generation.samples >= 1 + _facts(p).compares_answers,
    ),
    Invariant(
        ("objective.kind", "generation.samples", "batch.global"),
        "an optimizer step holds all answers to its prompts",
        lambda p: not _facts(p).generates or p.batch.global_ % max(p.generation.samples, 1) == 0,
    ),
    Invariant(
        ("objective.kind", "generation.prompt", "generation.completion", "data.sequence"),
        "data.sequence is the prompt with the answer",
        lambda p: (
            not _facts(p).generates
            or p.data.sequence == p.generation.prompt + p.generation.completion
        ),
    ),
    Invariant(
        ("generation.device_share", "generation.engine"),
        "only an engine on the same devices takes a share of them",
        lambda p: p.generation.device_share == 0 or p.generation.engine in BESIDE_TRAINING,
    ),
    Invariant(
        ("generation.engine_sleeps", "generation.offload_training", "generation.engine"),
        "only an engine on the same devices sleeps while they train, or has them while it writes",
        lambda p: (
            not (p.generation.engine_sleeps or p.generation.offload_training)
            or p.generation.engine in BESIDE_TRAINING
        ),
    ),
    Invariant(
        ("objective.kind", "ppo.critic", "ppo.epochs"),
        "PPO has a critic and trains on its answers at least once, and others have none",
        lambda p: _facts(p).values == bool(p.ppo.critic) == (p.ppo.epochs > 0),
    ),
    Invariant(
        ("objective.kind", "objective.beta", "ppo.kl"),
        "PPO's distance from the reference counts somewhere exactly where its weight is above 0",
        lambda p: (_facts(p).values and p.objective.beta > 0) == (p.ppo.kl != "none"),
    ),
    Invariant(
        ("evaluation.predictions", "evaluation.completion"),
        "evaluation writes answers exactly where they have a length",
        lambda p: (p.evaluation.predictions == "answers") == (p.evaluation.completion > 0),
    ),
    Invariant(
        ("evaluation.predictions", "schedule.evaluation_steps"),
        "predictions are made only where there is an evaluation",
        lambda p: p.evaluation.predictions == "loss" or p.schedule.evaluation_steps is not None,
    ),
    Invariant(
        ("evaluation.predictions", "evaluation.kept_batches"),
        "it is known how many batches of logits a device keeps",
        lambda p: p.evaluation.predictions != "logits" or p.evaluation.kept_batches is not None,
    ),
    Invariant(
        ("schedule.epochs", "schedule.steps"),
        "the run has a length",
        lambda p: p.schedule.epochs is not None or p.schedule.steps is not None,
    ),
    Invariant(
        ("schedule.warmup_steps", "schedule.steps"),
        "warm-up ends before training does",
        lambda p: p.schedule.steps is None or (p.schedule.warmup_steps or 0) <= p.schedule.steps,
    ),
    Invariant(
        ("schedule.warmup_share", "schedule.warmup_steps"),
        "the warm-up has a length",
        lambda p: p.schedule.warmup_share is not None or p.schedule.warmup_steps is not None,
    ),
)


def breaches(plan: Plan) -> Iterator[Invariant]:
    """The invariants that a plan breaks."""
    return (each for each in INVARIANTS if not each.holds(plan))
