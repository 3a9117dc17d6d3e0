"""How verl's trainer is asked about its file, and how it is heard."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.consumers.environments import EnvironmentUnavailable
from tunec.compiler.consumers.sets import choose
from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Json
from tunec.compiler.verify.contract import (
    Answers,
    Case,
    Heard,
    Program,
    Question,
    Where,
    facts,
    flat,
    taken,
)
from tunec.compiler.verify.delivery import document
from tunec.targets.huggingface.model import DTYPES
from tunec.targets.huggingface.verify import SECONDS, adapter_program, in_order
from tunec.targets.rows import has_adapter
from tunec.targets.verl.optimizer import CLASSES, has_moments
from tunec.targets.verl.packages import PACKAGE, RELEASES

SCRIPT: Final = "tunec.targets.verl.consumer"
FILE: Final = "verl_sft.yaml"
TRAINER: Final = "verl sft_trainer"
_BITS: Final = "bitsandbytes==0.50.2"
_HYDRA: Final = "defaults"
"""The key that Hydra itself takes: no trainer sees it."""
Told = Iterator[tuple[str, str, Any, Any]]


def where(case: Case) -> Where:
    """The release, with what goes with it. Raises EnvironmentUnavailable for one that is read."""
    if str(case.version) not in RELEASES:
        raise EnvironmentUnavailable(f"{PACKAGE}=={case.version}", "no set of packages is known")
    known = choose(PACKAGE, str(case.version))
    packed = (_BITS,) if case.plan.optimizer.kernel == "bitsandbytes" else ()
    return Where(known.consumer, known.version, (*known.requirements, *packed))


def _ask(case: Case, _: Answers) -> Question:
    return {
        "verb": "resolve",
        "yaml": case.text(FILE),
        "name": FILE.removesuffix(".yaml"),
        "config": dict(case.config or {"model_type": case.plan.model.family}),
        "samples": case.plan.data.samples,
        "world_size": case.plan.parallel.world,
    }


def _hear(case: Case, answer: Any) -> Heard:
    found = flat(answer["values"])
    written = flat(document(case.file(FILE), case.delivered[FILE]))
    return Heard(
        values={**found, _HYDRA: written.get(_HYDRA)},
        facts=facts([*_facts(case.plan, answer["derived"])]),
        ignored=tuple(
            key
            for key in written
            if key != _HYDRA and (key not in found or key in answer["unread"])
        ),
    )


# ── what its own functions make of the values ────────────────────────────────────────────────────


def _facts(plan: Plan, told: Mapping[str, Any]) -> Told:
    yield from _loop(plan, told)
    yield from _optimizer(plan, told["optimizer"], told["rate"])
    yield from _engine(plan, told)
    adapter = told["adapter"] or {}
    yield "adapter.kind", "model.lora_rank", has_adapter(plan), bool(adapter)
    if adapter:
        yield "adapter.rank", "model.lora_rank", plan.adapter.rank, adapter["r"]
        yield "adapter.alpha", "model.lora_alpha", plan.adapter.alpha, adapter["lora_alpha"]
        yield "adapter.dropout", "model.lora_rank", plan.adapter.dropout, adapter["lora_dropout"]
        yield "adapter.rslora", "model.lora_rank", plan.adapter.rslora, adapter["use_rslora"]


def _loop(plan: Plan, told: Mapping[str, Any]) -> Told:
    key = "data.micro_batch_size_per_gpu"
    yield "batch.accumulation", key, plan.batch.accumulation, told["micro_batches"]
    if "steps" in told and plan.schedule.steps is not None:
        yield "schedule.steps", "trainer.total_epochs", plan.schedule.steps, told["steps"]


def _optimizer(plan: Plan, made: Mapping[str, Any], rate: Mapping[str, Any]) -> Told:
    wanted = plan.optimizer
    name, _ = CLASSES[(wanted.name, wanted.kernel)]
    yield "optimizer.name", "optim.optimizer", name, made["class"]
    yield "optimizer.learning_rate", "optim.lr", wanted.learning_rate, made["lr"]
    yield "optimizer.weight_decay", "optim.weight_decay", wanted.weight_decay, made["weight_decay"]
    if has_moments(plan):
        yield "optimizer.beta1", "optim.betas", [wanted.beta1, wanted.beta2], made["betas"]
        yield "optimizer.epsilon", "optim.override_optimizer_config", wanted.epsilon, made["eps"]
    if wanted.kernel in ("foreach", "fused"):
        is_fused = wanted.kernel == "fused"
        yield "optimizer.kernel", "optim.optimizer_impl", is_fused, bool(made["fused"])
    if plan.schedule.warmup_steps is not None and plan.schedule.steps is not None:
        yield (
            "schedule.warmup_steps",
            "optim.lr_warmup_steps",
            plan.schedule.warmup_steps,
            rate["warmup"],
        )
        yield "schedule.kind", "optim.lr_scheduler_type", _last(plan), round(rate["last"], 9)


def _last(plan: Plan) -> float:
    """The factor of the rate after the last step."""
    least = dict(plan.schedule.arguments).get("min_lr_rate", 0.0)
    return round(float(least), 9) if plan.schedule.kind.startswith("cosine") else 1.0


_SHARDINGS: Final = {"full": "FULL_SHARD", "grad_op": "SHARD_GRAD_OP", "hybrid": "HYBRID_SHARD"}


def _engine(plan: Plan, told: Mapping[str, Any]) -> Told:
    compute, weights = DTYPES[plan.precision.compute], DTYPES[plan.states.weights]
    yield "precision.compute", "engine.mixed_precision.param_dtype", compute, told["compute"]
    yield "states.weights", "engine.model_dtype", weights, told["weights"]
    world, size = plan.parallel.world, plan.devices.per_node
    mesh = [world // size, size] if plan.fsdp.sharding == "hybrid" else [world]
    yield "parallel.world", "engine.fsdp_size", mesh, told["mesh"]
    if plan.parallel.engine == "fsdp":
        key = "engine.reshard_after_forward"
        yield "fsdp.sharding", key, _SHARDINGS[plan.fsdp.sharding], told["sharding"]


# ── peft ─────────────────────────────────────────────────────────────────────────────────────────


def _lora(case: Case, answers: Answers) -> Mapping[str, Json] | None:
    """What the engine hands to peft."""
    answer = taken(answers, TRAINER)
    adapter: Mapping[str, Json] | None = None if answer is None else answer["derived"]["adapter"]
    return adapter and {"peft_type": "LORA", **adapter, **in_order(case.plan, adapter)}


_NAMES: Final = {
    "r": "model.lora_rank",
    "lora_alpha": "model.lora_alpha",
    "target_modules": "model.target_modules",
}

PROGRAMS: Final = (
    Program(TRAINER, FILE, SCRIPT, where, _ask, _hear, seconds=SECONDS),
    adapter_program(FILE, _lora, where, lambda key: _NAMES.get(key, ""), after=TRAINER),
)
