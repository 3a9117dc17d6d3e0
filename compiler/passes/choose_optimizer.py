"""choose_optimizer: the optimizer and its learning rate."""

from collections.abc import Mapping
from typing import Final

from tunec.compiler.analyses.memory.modules import BYTES
from tunec.compiler.analyses.memory.terms.optimizer import MOMENTS
from tunec.compiler.facts import Facts
from tunec.compiler.ir.plan import Draft
from tunec.compiler.passes.contract import Option, Outcome, Scribe, as_given, slot, spec
from tunec.compiler.passes.defaults import Aim, Method, usual_rate
from tunec.schemas.terms import STEPS_IN_BACKWARD, OptimizerKernel, OptimizerName
from tunec.schemas.units import format_bytes

_KERNELS: dict[OptimizerName, OptimizerKernel] = {
    "adamw": "fused",
    "adamw_8bit": "bitsandbytes",
    "paged_adamw_8bit": "bitsandbytes",
    "paged_adamw_32bit": "bitsandbytes",
    "adamw_bf16": "own",
    "adafactor": "own",
    "lion": "own",
    "lion_8bit": "bitsandbytes",
    "paged_lion_8bit": "bitsandbytes",
    "paged_lion_32bit": "bitsandbytes",
    "muon": "own",
    "sgd": "foreach",
    "lomo": "own",
    "adalomo": "own",
}

_UNUSUAL_FACTOR = 20
"""A rate that differs from the usual one by this factor is reported."""


def choose_optimizer(facts: Facts, draft: Draft) -> Outcome:
    """Use the spec's optimizer, or the one that suits the precision and the method."""
    scribe = Scribe(facts)
    wish = facts.spec.train.optimizer
    named = "optimizer" in facts.spec.train.model_fields_set
    options = _options(facts, draft, named=named or "optimizer.name" in facts.pins)
    name = scribe.choose(
        "optimizer.name",
        options,
        "E0604",
        wish.name if named else None,
        "train.optimizer",
        setting=lambda name: f"train.optimizer.name={name}",
    )
    scribe.say(
        "optimizer.kernel", _KERNELS[name], f"the usual one for {name}", slot("optimizer.name")
    )
    _learning_rate(scribe, draft, name)
    for field in ("beta1", "beta2", "epsilon"):
        why = as_given(facts.spec.train, f"optimizer.{field}")
        scribe.say(f"optimizer.{field}", getattr(wish, field), why, spec("train.optimizer"))
    for field in ("weight_decay", "max_grad_norm"):
        _regularisation(scribe, field, name)
    return scribe.outcome()


def _regularisation(scribe: Scribe, field: str, name: OptimizerName) -> None:
    """Use the spec's number, unless the trainer does not pass it to this optimizer.

    LOMO gets only a rate (transformers 4.41 to 5.23 trainer_optimizer.py, before 5.6 trainer.py,
    `_get_lomo_optimizer`), and no gradient is left when the trainer clips.
    """
    wish, path = scribe.facts.spec.train.optimizer, f"train.optimizer.{field}"
    given, value = field in wish.model_fields_set, getattr(wish, field)
    if name not in STEPS_IN_BACKWARD:
        why = as_given(scribe.facts.spec.train, f"optimizer.{field}")
        scribe.say(f"optimizer.{field}", value, why, spec("train.optimizer"))
        return
    why = f"{name} updates in the backward pass, without it"
    scribe.say(f"optimizer.{field}", 0.0, why, slot("optimizer.name"))
    if given and value:
        scribe.report(
            "optimizer-number-unused",
            "warning",
            f"{name} takes no {field}: each tensor is updated as soon as its gradient is computed",
            path,
            help="remove it, or choose another optimizer",
        )


def _options(facts: Facts, draft: Draft, *, named: bool) -> list[Option]:
    compute = draft.precision.compute
    pure_bf16 = facts.model.architecture.kind == "diffusion" and compute == "bf16"
    bf16 = Option(
        "adamw_bf16",
        "keeps bf16 parameters exact by stochastic rounding",
        _needs_bf16(compute) if named else _needs_bf16(compute) or _lacks_shards(facts, draft),
        (slot("precision.compute"),),
    )
    adamw = Option("adamw", "the usual optimizer", None, (spec("train.optimizer"),))
    first = [bf16, adamw] if pure_bf16 else [adamw, bf16]
    others = [name for name in _KERNELS if name not in ("adamw", "adamw_bf16")]
    return first + [
        Option(name, _merit(name), _refused(facts, draft, name), (spec("train.optimizer"),))
        for name in others
    ]


_WIDER: Final[Mapping[str, str]] = {
    "deepspeed": "DeepSpeed keeps fp32 copies, which it exists to avoid",
    "fsdp": "what FSDP trains is fp32, which it exists to avoid",
}
"""Why an optimizer of bf16 parameters has none."""


def _needs_bf16(compute: str) -> str | None:
    """SimpleTuner helpers/training/optimizers/adamw_bfloat16 asserts the parameters' dtype."""
    return (
        None if compute == "bf16" else f"it updates bf16 parameters only, and these are {compute}"
    )


def _lacks_shards(facts: Facts, draft: Draft) -> str | None:
    """Why AdamWBF16 is no good choice where shards are wanted or needed: it cannot run there.

    They are needed where not even AdamW's states in bf16 fit a device whole.
    """
    engine = facts.pinned("parallel.engine", facts.spec.engine)
    if engine in _WIDER:
        return _WIDER[engine]
    tensors = 2 + MOMENTS["adamw"]
    needed = tensors * BYTES["bf16"] * facts.model.architecture.parameters
    if draft.adapter.kind == "none" and needed > draft.devices.budget:
        size = format_bytes(needed)
        return f"weights, gradients and states take over {size}, and DeepSpeed cannot shard its own"
    return None


def _refused(facts: Facts, draft: Draft, name: OptimizerName) -> str | None:
    """Why LOMO cannot train: accelerate 1.15 accelerator.py `backward`, lomo-optim 0.1.1."""
    if name not in STEPS_IN_BACKWARD:
        return None
    if draft.adapter.kind != "none":
        return "it saves memory by not holding the gradients of all weights, and adapters have few"
    if draft.precision.compute == "fp16":
        return "accelerate scales an fp16 loss, but then bypasses its backward pass"
    modules = facts.model.architecture.modules
    if name == "adalomo" and any(len(each.shape) > 2 for each in modules):
        return (
            "it stores row and column statistics of matrices, and some weights have more dimensions"
        )
    return None


def _merit(name: OptimizerName) -> str:
    if name.startswith("paged_"):
        return "by name; the driver moves its states to host RAM where the device runs short"
    if name in STEPS_IN_BACKWARD:
        return (
            "by name; updates each tensor as soon as its gradient is computed, so few "
            "gradients exist at a time"
        )
    if name == "muon":
        return "by name; orthogonalises matrices, and uses DeepSpeed's Adam for everything else"
    return "by name"


def _learning_rate(scribe: Scribe, draft: Draft, name: OptimizerName) -> None:
    given = scribe.facts.spec.train.learning_rate
    method: Method = "full" if draft.adapter.kind == "none" else "adapter"
    objective = draft.objective.kind
    field: Aim = "diffusion" if draft.model.kind == "diffusion" else "language"
    aim = field if objective == "sft" else objective
    usual = usual_rate(method, aim, draft.model.parameters, name)
    if given is None:
        why = f"not given: usual for {method} training of such models"
        why += f" by {objective}" if objective != "sft" else ""
        rests = (slot("adapter.kind"), slot("model.parameters"), slot("optimizer.name"))
        more = [slot("objective.kind")] if objective != "sft" else []
        scribe.say("optimizer.learning_rate", usual, why, *rests, *more)
        return
    scribe.say("optimizer.learning_rate", given, "the spec's own", spec("train.learning_rate"))
    if not usual / _UNUSUAL_FACTOR <= given <= usual * _UNUSUAL_FACTOR:
        scribe.report(
            "learning-rate-unusual",
            "note",
            f"a learning rate of {given:g} is far from {usual:g}, the usual rate for {method} "
            "training of such models",
            "train.learning_rate",
        )
