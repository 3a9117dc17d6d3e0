"""Plans that DeepSpeed refuses or runs differently, although every key is well formed."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from packaging.version import Version

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.ir.plan import Plan, SlotNotSet
from tunec.compiler.ir.slots import Optimizer
from tunec.compiler.releases import parsed
from tunec.compiler.target import Dialect
from tunec.targets.deepspeed.reader import BUILT, PACKAGE, Reader


class Refusal(NamedTuple):
    """A combination of slots that DeepSpeed does not run, from one version until another."""

    slots: tuple[str, ...]
    text: str
    holds: Callable[[Plan], bool]
    source: str
    help: str
    since: str = "0"
    until: str = "9999"


def _unsharded(plan: Plan) -> bool:
    return plan.zero.stage == 0


def _mixed_gradients(plan: Plan) -> bool:
    return plan.states.gradients != plan.precision.compute


def _bf16_into_fp32(plan: Plan) -> bool:
    return plan.precision.compute == "bf16" and plan.states.gradients == "fp32"


def _no_copies_without_cpu_adam(plan: Plan) -> bool:
    if plan.states.master_weights or plan.precision.compute == "fp32" or plan.zero.stage == 0:
        return False
    on_cpu = plan.zero.offload_optimizer != "none" and plan.optimizer.name == "adamw"
    return not on_cpu and plan.states.optimizer != "bf16"


_SANITY: Final = "runtime/engine.py `_do_optimizer_sanity_check`, which raises"
_COPIES: Final = "runtime/base_optimizer.py `_configure_master_weights`, AssertionError"

REFUSALS: Final = (
    Refusal(
        ("zero.stage", "precision.compute", "states.gradients"),
        "without ZeRO it accumulates bf16 gradients in fp32 only",
        lambda p: _unsharded(p) and p.precision.compute == "bf16" and not _mixed_gradients(p),
        f"deepspeed 0.14.5 to 0.17.5 {_SANITY}",
        "use stage 1 or higher, or pin states.gradients to fp32",
        until="0.17.6",
    ),
    Refusal(
        ("zero.stage", "precision.compute", "states.gradients"),
        "without ZeRO it accumulates gradients in the dtype of the model only",
        lambda p: _unsharded(p) and _mixed_gradients(p) and not _bf16_into_fp32(p),
        f"deepspeed 0.14.5 to 0.19.8 {_SANITY}",
        "use stage 1 or higher, or accumulate in the compute dtype",
    ),
    Refusal(
        ("zero.stage", "precision.compute", "states.gradients"),
        "without ZeRO it no longer accumulates bf16 gradients in fp32",
        lambda p: _unsharded(p) and _bf16_into_fp32(p),
        f"deepspeed 0.18.5 to 0.19.8 {_SANITY}",
        "use stage 1 or higher, or accumulate in bf16",
        since="0.18.5",
    ),
    Refusal(
        ("states.optimizer", "states.master_weights"),
        "it keeps bf16 optimizer states only beside bf16 master weights",
        lambda p: (
            p.states.optimizer == "bf16"
            and p.states.master_weights
            and p.precision.compute == "bf16"
            and p.zero.stage > 0
        ),
        f"deepspeed 0.18.3 to 0.19.8 {_COPIES}",
        "pin states.master_weights to false as well",
        since="0.18.3",
    ),
    Refusal(
        ("states.master_weights", "zero.offload_optimizer"),
        "it gives up fp32 master weights only with its CPU Adam, or with bf16 optimizer states",
        _no_copies_without_cpu_adam,
        f"deepspeed 0.14.5 to 0.19.8 {_COPIES}",
        "offload the optimizer, or keep the master weights",
    ),
    Refusal(
        ("optimizer.name",),
        "it has no Muon, or one that does not leave embeddings and frozen weights alone",
        lambda p: p.optimizer.name == "muon",
        "deepspeed 0.14.5 to 0.18.6 runtime/config.py `DEEPSPEED_OPTIMIZERS`, runtime/engine.py "
        "`_configure_basic_optimizer`",
        "use deepspeed 0.18.7 or newer",
        until="0.18.7",
    ),
    Refusal(
        ("optimizer.name", "zero.reduce_scatter"),
        "each rank steps Muon's matrices by gradients of which it reduced its own part only",
        lambda p: p.optimizer.name == "muon" and p.zero.reduce_scatter,
        "deepspeed 0.17.6 to 0.19.2 runtime/zero/stage_1_and_2.py `average_tensor`",
        "pin zero.reduce_scatter to false",
        until="0.19.3",
    ),
    Refusal(
        ("optimizer.name", "states.gradients"),
        "its Muon blends gradients into momenta of the same dtype only",
        lambda p: p.optimizer.name == "muon" and _mixed_gradients(p),
        "deepspeed 0.17.6 to 0.19.6 runtime/zero/stage_1_and_2.py `get_flat_partition`: "
        "RuntimeError of torch.lerp",
        "accumulate in the compute dtype",
        until="0.19.7",
    ),
    Refusal(
        ("zero.offload_optimizer", "zero.stage"),
        "below stage 3 it keeps optimizer states in CPU memory and never on NVMe",
        lambda p: p.zero.offload_optimizer == "nvme" and p.zero.stage in (1, 2),
        "deepspeed 0.14.5 to 0.19.8 runtime/zero/stage_1_and_2.py `self.cpu_offload`",
        "offload to cpu, or use stage 3",
    ),
)


def refused(
    program: str, known: Iterable[Refusal], plan: Plan, version: Version
) -> Iterator[Diagnostic]:
    """Yield an error for each combination in a plan that a version of a program does not run.

    Of a plan that is known in part, what the known part says.
    """
    for each in known:
        is_of_release = parsed(each.since) <= version < parsed(each.until)
        labels = _labels(each, plan) if is_of_release else ()
        if labels:
            message = f"{program} does not run this plan: {each.text}"
            yield Diagnostic("E0905", "error", message, labels, (each.source,), help=each.help)


def _labels(refusal: Refusal, plan: Plan) -> tuple[Label, ...]:
    """The slots of a refusal with their values; none if it does not apply."""
    try:
        said = refusal.slots if refusal.holds(plan) else ()
        return tuple(Label(f"{slot} is {plan[slot]}", path=slot) for slot in said)
    except SlotNotSet:
        return ()


def refusals(plan: Plan, dialect: Dialect) -> Iterator[Diagnostic]:
    """Yield an error for each combination in a plan that a version of DeepSpeed does not run."""
    version = dialect[PACKAGE]
    yield from refused(f"deepspeed {version}", REFUSALS, plan, version)


def left_to_script(plan: Plan) -> Iterator[Diagnostic]:
    """Warn if the training script has to build an optimizer that the file cannot name."""
    optimizer = plan.optimizer
    if optimizer.name in BUILT:
        return
    yield Diagnostic(
        "optimizer-left-to-script",
        "warning",
        f"DeepSpeed does not build {optimizer.name}, so ds_config.json only admits it",
        (Label("decided here", path="optimizer.name"),),
        (_settings(optimizer),),
        help=f"use one of {', '.join(BUILT)}, or hand the optimizer to deepspeed.initialize",
    )


def _settings(optimizer: Optimizer) -> str:
    return (
        f"the script has to build it with learning rate {optimizer.learning_rate:g}, betas "
        f"{optimizer.beta1:g} and {optimizer.beta2:g}, epsilon {optimizer.epsilon:g} and "
        f"weight decay {optimizer.weight_decay:g}"
    )


def check(reader: Reader) -> Callable[[Plan, Dialect], Iterator[Diagnostic]]:
    """The check of the file for one reader."""

    def found(plan: Plan, dialect: Dialect) -> Iterator[Diagnostic]:
        yield from refusals(plan, dialect)
        if not reader.is_trainer:
            yield from left_to_script(plan)

    return found
