"""How verl's programs are run on their files, and how their answers are read."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from msgspec import Struct

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
    taken,
)
from tunec.compiler.verify.delivery import values_of
from tunec.schemas.dotted_paths import flat
from tunec.schemas.frozen import replace
from tunec.targets.huggingface.model import DTYPES
from tunec.targets.huggingface.verify import SECONDS, adapter_program, in_order
from tunec.targets.rows import has_adapter, has_critic
from tunec.targets.verl.critic import CRITIC, critics_weights
from tunec.targets.verl.optimizer import CLASSES, has_moments
from tunec.targets.verl.packages import PACKAGE, RELEASES
from tunec.targets.verl.rewards import ACTOR

SCRIPT: Final = "tunec.targets.verl.consumer"
TRAINER: Final = "verl sft_trainer"
REWARDING: Final = "verl main_ppo"
CRITICISING: Final = "verl main_ppo with a critic"
_BITS: Final = "bitsandbytes==0.50.2"
_HYDRA: Final = "defaults"
"""The key that Hydra consumes, so that no trainer sees it."""
Told = Iterator[tuple[str, str, Any, Any]]


class _Reader(Struct, frozen=True):
    """One of verl's programs: its verb, and the section with the shared settings."""

    program: str
    file: str
    verb: str
    model: str = "model"
    engine: str = "engine"
    strategy: str = "engine.strategy"
    optimizer: str = "optim"
    micro: str = "data.micro_batch_size_per_gpu"


_OF_TEXTS: Final = _Reader(TRAINER, "verl_sft.yaml", "resolve")
_OF_REWARDS: Final = _Reader(
    REWARDING,
    "verl_grpo.yaml",
    "rewarded",
    model="actor_rollout_ref.model",
    engine=f"{ACTOR}.fsdp_config",
    strategy=f"{ACTOR}.strategy",
    optimizer=f"{ACTOR}.optim",
    micro=f"{ACTOR}.ppo_micro_batch_size_per_gpu",
)
_OF_VALUES: Final = replace(_OF_REWARDS, program=CRITICISING, file="verl_ppo.yaml")


def where(case: Case) -> Where:
    """The environment of a release. Raises EnvironmentUnavailable for one that is only read."""
    packed = (_BITS,) if case.plan.optimizer.kernel == "bitsandbytes" else ()
    return known_environment(PACKAGE, case.version, RELEASES, beside=packed)


def _ask(reader: _Reader, case: Case, _: Answers) -> Question:
    return {
        "verb": reader.verb,
        "yaml": case.text(reader.file),
        "name": reader.file.removesuffix(".yaml"),
        "config": dict(case.config or {"model_type": case.plan.model.family}),
        "samples": case.plan.data.samples,
        "world_size": case.plan.parallel.world,
    }


def _hear(reader: _Reader, case: Case, answer: Any) -> TranslatedAnswer:
    found = flat(answer["values"])
    written = flat(values_of(case, reader.file))
    return TranslatedAnswer(
        values={**found, _HYDRA: written.get(_HYDRA)},
        facts=facts([*_facts(reader, case.plan, answer["derived"])]),
        ignored=tuple(
            key
            for key in written
            if key != _HYDRA and (key not in found or key in answer["unread"])
        ),
    )


# ── what its own functions make of the values ────────────────────────────────────────────────────


def _facts(reader: _Reader, plan: Plan, told: Mapping[str, Any]) -> Told:
    yield from _loop(reader, plan, told)
    yield from _optimizer(reader.optimizer, plan, told["optimizer"], told["rate"])
    yield from _engine(reader, plan, told)
    rank, alpha = (f"{reader.model}.{name}" for name in ("lora_rank", "lora_alpha"))
    adapter = told["adapter"] or {}
    yield "adapter.kind", rank, has_adapter(plan), bool(adapter)
    if told.get("critic"):
        yield from _critic(plan, told["critic"])
    if adapter:
        yield "adapter.rank", rank, plan.adapter.rank, adapter["r"]
        yield "adapter.alpha", alpha, plan.adapter.alpha, adapter["lora_alpha"]
        yield "adapter.dropout", rank, plan.adapter.dropout, adapter["lora_dropout"]
        yield "adapter.rslora", rank, plan.adapter.rslora, adapter["use_rslora"]


def _critic(plan: Plan, told: Mapping[str, Any]) -> Told:
    """The second model, which is sharded and stepped as the first one is, at a rate of its own."""
    full = plan.with_values({"adapter.kind": "none", "states.weights": critics_weights(plan)})
    rate = {"optimizer.learning_rate": plan.ppo.critic_learning_rate}
    at = f"{CRITIC}.fsdp"
    reader = _Reader(CRITICISING, "verl_ppo.yaml", "rewarded", CRITIC, at, optimizer=_RATES)
    yield from _optimizer(_RATES, full.with_values(rate), told["optimizer"], told["rate"])
    yield from _engine(reader, full, told)
    tokens = plan.batch.micro * plan.data.sequence
    yield "batch.micro", f"{CRITIC}.ppo_max_token_len_per_gpu", [tokens, tokens], told["tokens"]
    yield "ppo.epochs", f"{CRITIC}.ppo_epochs", plan.ppo.epochs, told["epochs"]
    yield "batch.global", f"{CRITIC}.ppo_mini_batch_size", plan.batch.global_, told["answers"]
    yield "adapter.kind", f"{CRITIC}.model.lora_rank", 0, told["adapters"]


_RATES: Final = f"{CRITIC}.optim"


def _loop(reader: _Reader, plan: Plan, told: Mapping[str, Any]) -> Told:
    accumulated = plan.batch.accumulation
    yield "batch.accumulation", reader.micro, accumulated, told["micro_batches"]
    if "steps" in told and plan.schedule.steps is not None:
        yield "schedule.steps", "trainer.total_epochs", plan.schedule.steps, told["steps"]
    if "critic" in told:
        yield "objective.kind", "algorithm.adv_estimator", has_critic(plan), bool(told["critic"])
        compared = plan.objective.reference != "none"
        yield "objective.reference", f"{ACTOR}.use_kl_loss", compared, told["reference"]


def _optimizer(at: str, plan: Plan, made: Mapping[str, Any], rate: Mapping[str, Any]) -> Told:
    wanted = plan.optimizer
    name, _ = CLASSES[(wanted.name, wanted.kernel)]
    yield "optimizer.name", f"{at}.optimizer", name, made["class"]
    yield "optimizer.learning_rate", f"{at}.lr", wanted.learning_rate, made["lr"]
    decay = wanted.weight_decay
    yield "optimizer.weight_decay", f"{at}.weight_decay", decay, made["weight_decay"]
    if has_moments(plan):
        yield "optimizer.beta1", f"{at}.betas", [wanted.beta1, wanted.beta2], made["betas"]
        key = f"{at}.override_optimizer_config"
        yield "optimizer.epsilon", key, wanted.epsilon, made["eps"]
    if wanted.kernel in ("foreach", "fused"):
        is_fused = wanted.kernel == "fused"
        yield "optimizer.kernel", f"{at}.optimizer_impl", is_fused, bool(made["fused"])
    steps = plan.schedule.warmup_steps
    if steps is not None and plan.schedule.steps is not None:
        yield "schedule.warmup_steps", f"{at}.lr_warmup_steps", steps, rate["warmup"]
        key = f"{at}.lr_scheduler_type"
        yield "schedule.kind", key, _last(plan), round(rate["last"], 9)


def _last(plan: Plan) -> float:
    """The factor of the learning rate after the last step."""
    least = dict(plan.schedule.arguments).get("min_lr_rate", 0.0)
    return round(float(least), 9) if plan.schedule.kind.startswith("cosine") else 1.0


_SHARDINGS: Final = {"full": "FULL_SHARD", "grad_op": "SHARD_GRAD_OP", "hybrid": "HYBRID_SHARD"}


def _engine(reader: _Reader, plan: Plan, told: Mapping[str, Any]) -> Told:
    at = reader.engine
    compute, weights = DTYPES[plan.precision.compute], DTYPES[plan.states.weights]
    yield "precision.compute", f"{at}.mixed_precision.param_dtype", compute, told["compute"]
    yield "states.weights", f"{at}.model_dtype", weights, told["weights"]
    world, size = plan.parallel.world, plan.devices.per_node
    mesh = [world // size, size] if plan.fsdp.sharding == "hybrid" else [world]
    yield "parallel.world", f"{at}.fsdp_size", mesh, told["mesh"]
    if plan.parallel.engine == "fsdp":
        key, kind = f"{at}.reshard_after_forward", _SHARDINGS[plan.fsdp.sharding]
        yield "fsdp.sharding", key, kind, told["sharding"]


# ── peft ─────────────────────────────────────────────────────────────────────────────────────────


def _lora(reader: _Reader, case: Case, answers: Answers) -> Mapping[str, Json] | None:
    """The adapter that the engine passes to peft."""
    answer = taken(answers, reader.program)
    adapter: Mapping[str, Json] | None = None if answer is None else answer["derived"]["adapter"]
    return adapter and {"peft_type": "LORA", **adapter, **in_order(case.plan, adapter)}


_NAMES: Final = {"r": "lora_rank", "lora_alpha": "lora_alpha", "target_modules": "target_modules"}


def _named(reader: _Reader, key: str) -> str:
    return f"{reader.model}.{_NAMES[key]}" if key in _NAMES else ""


def _programs(reader: _Reader) -> tuple[Program, Program]:
    """The program, and PEFT with the adapter that it gets."""
    ask, hear = partial(_ask, reader), partial(_hear, reader)
    lora, named = partial(_lora, reader), partial(_named, reader)
    return (
        Program(reader.program, reader.file, SCRIPT, where, ask, hear, seconds=SECONDS),
        adapter_program(reader.file, lora, where, named, after=reader.program),
    )


PROGRAMS: Final = (*_programs(_OF_TEXTS), *_programs(_OF_REWARDS), *_programs(_OF_VALUES))
