"""How NeMo AutoModel's loader is run on its YAML, and how its answers are read."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Json
from tunec.compiler.verify.contract import (
    Answers,
    Case,
    Program,
    Question,
    TranslatedAnswer,
    Where,
    facts,
    known_environment,
)
from tunec.compiler.verify.delivery import values_of
from tunec.schemas.data_paths import first_of
from tunec.schemas.dotted_paths import flat
from tunec.targets.huggingface.model import DTYPES
from tunec.targets.huggingface.verify import SECONDS
from tunec.targets.nemo_automodel.packages import NAME, RELEASES
from tunec.targets.rows import is_quantised, on_fsdp, recomputes_layers

SCRIPT: Final = "tunec.targets.nemo_automodel.consumer"
FILE: Final = "nemo_automodel.yaml"
RECIPE: Final = "nemo-automodel train_ft"
_BITS: Final = "bitsandbytes==0.50.2"
Told = Iterator[tuple[str, str, Any, Any]]


def where(case: Case) -> Where:
    """The environment of a release. Raises EnvironmentUnavailable for an unknown one."""
    packed = (_BITS,) if is_quantised(case.plan) else ()
    return known_environment(NAME, case.version, RELEASES, beside=packed)


def _ask(case: Case, _: Answers) -> Question:
    return {
        "verb": "resolve",
        "yaml": case.text(FILE),
        "samples": case.plan.data.samples,
        "world_size": case.plan.parallel.world,
    }


def _hear(case: Case, answer: Any) -> TranslatedAnswer:
    found = flat(answer["values"])
    written = flat(values_of(case, FILE))
    return TranslatedAnswer(
        values=found,
        facts=facts([*_facts(case.plan, answer["derived"])]),
        ignored=tuple(key for key in written if key not in found),
    )


# ── what its own classes build of the values ─────────────────────────────────────────────────────


def _facts(plan: Plan, told: Mapping[str, Any]) -> Told:
    yield "states.weights", "model.torch_dtype", DTYPES[plan.states.weights], told["model"]["dtype"]
    yield "runtime.seed", "seed", plan.runtime.seed, told["seed"]
    yield "loss.path", "loss_fn._target_", "MaskedCrossEntropy", told["loss"]
    yield from _data(plan, told["data"])
    yield from _loop(plan, told["steps"], told["rate"])
    yield from _optimizer(plan, told["optimizer"])
    yield from _engine(plan, told["distributed"])
    if told["adapted"] is not None:
        names = [*plan.adapter.targets]
        yield "adapter.targets", "peft.target_modules", names, told["adapted"]
    packed, made = plan.quantization.format in ("nf4", "fp4"), told["quantization"] or {}
    key = "quantization.load_in_4bit"
    yield "quantization.format", key, packed, bool(made.get("load_in_4bit"))
    if packed:
        kind, double = made["bnb_4bit_quant_type"], made["bnb_4bit_use_double_quant"]
        yield "quantization.format", key, plan.quantization.format, kind
        yield "quantization.double", key, plan.quantization.double, double


def _data(plan: Plan, sets: list[Mapping[str, Any]]) -> Told:
    kinds = {"prompt-completion": "ColumnMappedTextInstructionDatasetConfig"}
    kind = kinds.get(plan.data.format or "", "ChatDatasetConfig")
    for each in sets:
        yield "data.format", "dataset._target_", kind, each["kind"]
        yield "data.sequence", "dataset.seq_length", plan.data.sequence, each["seq_length"]
        yield "batch.micro", "step_scheduler.local_batch_size", plan.batch.micro, each["batch"]
    for most in plan.data.limits:
        yield "data.limits", "dataset.split", most, first_of(sets[0].get("split"))[1]
    held = plan.data.evaluation is not None
    yield "data.evaluation", "validation_dataset._target_", 1 + held, len(sets)


def _loop(plan: Plan, steps: Mapping[str, Any], rate: Mapping[str, Any] | None) -> Told:
    key = "step_scheduler.global_batch_size"
    yield "batch.accumulation", key, plan.batch.accumulation, steps["accumulation"]
    total = plan.schedule.steps
    if total is not None:
        yield "schedule.steps", "step_scheduler.num_epochs", total, steps["most"]
    if rate is None or plan.schedule.steps is None:
        return
    rises = plan.schedule.warmup_steps
    yield "schedule.warmup_steps", "lr_scheduler.lr_warmup_steps", rises, rate["warmup"]
    yield "schedule.kind", "lr_scheduler.lr_decay_style", _last(plan), round(rate["last"], 12)


def _last(plan: Plan) -> float:
    """The learning rate after the last step."""
    said, rate = dict(plan.schedule.arguments), plan.optimizer.learning_rate
    if plan.schedule.kind.startswith("constant"):
        return round(rate, 12)
    return round(float(said.get("min_lr", float(said.get("min_lr_rate", 0.0)) * rate)), 12)


def _optimizer(plan: Plan, made: Mapping[str, Any]) -> Told:
    wanted = plan.optimizer
    yield "optimizer.name", "optimizer._target_", "AdamW", made["class"]
    yield "optimizer.learning_rate", "optimizer.lr", wanted.learning_rate, made["lr"]
    yield (
        "optimizer.weight_decay",
        "optimizer.weight_decay",
        wanted.weight_decay,
        made["weight_decay"],
    )
    yield "optimizer.beta1", "optimizer.betas", [wanted.beta1, wanted.beta2], made["betas"]
    yield "optimizer.epsilon", "optimizer.eps", wanted.epsilon, made["eps"]
    yield "optimizer.kernel", "optimizer.fused", wanted.kernel == "fused", bool(made["fused"])


def _engine(plan: Plan, told: Mapping[str, Any]) -> Told:
    at = "distributed"
    yield "parallel.engine", f"{at}.strategy", "FSDP2Config", told["class"]
    recomputes: Json = recomputes_layers(plan)
    key = f"{at}.activation_checkpointing"
    yield "activation_checkpointing.mode", key, recomputes, told["recomputes"]
    yield "parallel.tensor", f"{at}.tp_size", plan.parallel.tensor, told["tensor"]
    yield "parallel.sequence", f"{at}.cp_size", plan.parallel.sequence, told["sequence"]
    if on_fsdp(plan):
        key, compute = f"{at}.mp_policy.param_dtype", DTYPES[plan.precision.compute]
        yield "precision.compute", key, compute, told["compute"]
        keeps = plan.fsdp.sharding == "grad_op"
        yield "fsdp.sharding", f"{at}.reshard_after_forward", keeps, told["keeps"]
        yield "fsdp.sharding", f"{at}.dp_replicate_size", None, told["copies"]


PROGRAMS: Final = (Program(RECIPE, FILE, SCRIPT, where, _ask, _hear, seconds=SECONDS),)
"""The check by its own classes, before a model is loaded."""
