"""What must hold between slots once they are decided; a breach comes from pins that contradict."""

from collections.abc import Callable, Iterator

from tunec.compiler.ir.plan import Plan
from tunec.schemas.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Invariant:
    """A relation between slots, in words and as a test."""

    slots: tuple[str, ...]
    text: str
    holds: Callable[[Plan], bool]


INVARIANTS = (
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
        ("quantization.format", "adapter.kind"),
        "a quantised base is trained through adapters",
        lambda p: p.quantization.format == "none" or p.adapter.kind != "none",
    ),
    Invariant(
        ("schedule.warmup_steps", "schedule.steps"),
        "warm-up ends before training does",
        lambda p: p.schedule.steps is None or p.schedule.warmup_steps <= p.schedule.steps,
    ),
)


def breaches(plan: Plan) -> Iterator[Invariant]:
    """The invariants that a plan breaks."""
    return (each for each in INVARIANTS if not each.holds(plan))
