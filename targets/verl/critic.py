"""Rows for PPO in `main_ppo`: its estimator, and the second model that gives each token a value."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Entry, Json, constant, derived, fixed, same
from tunec.schemas.frozen import replace
from tunec.targets.rows import has_adapter, recomputes_layers, row
from tunec.targets.verl.engine import engine
from tunec.targets.verl.optimizer import optimizer
from tunec.targets.verl.packages import SOURCE
from tunec.targets.verl.rewards import ACTOR, ESTIMATOR, KL, KL_KIND, USES_KL

CRITIC: Final = "critic"
_CONFIG: Final = f"{SOURCE} workers/config/critic.py `FSDPCriticConfig`"
_YAML: Final = f"{SOURCE} trainer/config/ppo_trainer.yaml"
_ESTIMATES: Final = f"{SOURCE} trainer/ppo/core_algos.py"
_IN_TURNS: Final = (
    "verl 0.8.0 trainer/ppo/ray_trainer.py `init_workers`, 0.9.0 to 0.9.1 "
    "trainer/ppo/v1/trainer_base.py `_setup`"
)
_LOADS: Final = f"{SOURCE} utils/model.py `load_valuehead_model`"


# ── the objective ────────────────────────────────────────────────────────────────────────────────

_IN_REWARD: Final = "algorithm.use_kl_in_reward"
_COEFFICIENT: Final = "algorithm.kl_ctrl.kl_coef"
_DISTANCE: Final = (USES_KL, KL, KL_KIND, _IN_REWARD, _COEFFICIENT)


def _write_distance(plan: Plan) -> Mapping[str, Json]:
    beta, place = plan.objective.beta, plan.ppo.kl
    in_loss = {USES_KL: True, KL: beta, KL_KIND: "low_var_kl"} if place == "loss" else {}
    in_reward = {_IN_REWARD: True, _COEFFICIENT: beta} if place == "reward" else {}
    return {USES_KL: False, _IN_REWARD: False, **in_loss, **in_reward}


def _read_distance(found: Mapping[str, Json]) -> Mapping[str, Any]:
    in_loss, in_reward = found.get(USES_KL) is True, found.get(_IN_REWARD) is True
    if in_loss and in_reward:
        return {}
    if in_reward:
        return _at("reward", found.get(_COEFFICIENT, 0.001))
    if not in_loss:
        return {"objective.beta": 0.0, "ppo.kl": "none"}
    is_estimated = found.get(KL_KIND, "low_var_kl") == "low_var_kl"
    return _at("loss", found.get(KL, 0.001)) if is_estimated else {}


def _at(place: str, beta: Json) -> Mapping[str, Any]:
    if not isinstance(beta, int | float) or not beta:
        return {}
    return {"objective.beta": float(beta), "ppo.kl": place}


_CLIPS: Final = tuple(f"{ACTOR}.{name}" for name in ("clip_ratio_low", "clip_ratio_high"))
_CLIP: Final = f"{ACTOR}.clip_ratio"


def _read_clip(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The bound on both sides; `clip_ratio` counts where neither has its own."""
    low, high = (found.get(key, 0.2) for key in _CLIPS)
    low, high = (found.get(_CLIP, 0.2) if each is None else each for each in (low, high))
    return {"ppo.clip": low} if low == high else {}


_OBJECTIVE: Final = (
    row(
        (ESTIMATOR,),
        ("objective.kind",),
        lambda _: {ESTIMATOR: "gae"},
        lambda found: {"objective.kind": "ppo"} if found[ESTIMATOR] == "gae" else {},
        f"{_ESTIMATES} `AdvantageEstimator`",
        absent={"objective.kind": "ppo"},
    ),
    fixed("objective.loss", "clipped", f"{_ESTIMATES} `compute_policy_loss_vanilla`"),
    row(
        _DISTANCE,
        ("objective.beta", "ppo.kl"),
        _write_distance,
        _read_distance,
        f"{_YAML}; trainer/ppo/utils.py `need_reference_policy`, ray_trainer.py `apply_kl_penalty`",
        absent={"objective.beta": 0.0, "ppo.kl": "none"},
    ),
    row(
        (*_CLIPS, _CLIP),
        ("ppo.clip",),
        lambda plan: dict.fromkeys((*_CLIPS, _CLIP), plan.ppo.clip),
        _read_clip,
        f"{_ESTIMATES} `compute_policy_loss_vanilla`",
        absent={"ppo.clip": 0.2},
    ),
    same(
        "algorithm.gamma",
        "ppo.gamma",
        f"{_ESTIMATES} `compute_gae_advantage_return`",
        default=1.0,
    ),
    same("algorithm.lam", "ppo.lam", f"{_ESTIMATES} `compute_gae_advantage_return`", default=1.0),
    same(f"{ACTOR}.ppo_epochs", "ppo.epochs", f"{_YAML}: the critic's follow it", default=1),
)


# ── the critic ───────────────────────────────────────────────────────────────────────────────────

_RATE: Final = "optimizer.learning_rate"
_WEIGHTS: Final = f"{CRITIC}.fsdp.model_dtype"
_OFFLOADS: Final = tuple(f"{CRITIC}.fsdp.{name}_offload" for name in ("param", "optimizer"))


def _as_the_actor(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Rows that give the critic what the actor has; they set no slot, which the actor's keys do."""
    for entry in entries:
        if entry.keys and _RATE not in entry.slots and _WEIGHTS not in entry.keys:
            yield replace(entry, slots=(), read=lambda _: {}, absent=())


def critics_weights(plan: Plan) -> str:
    """The dtype of the critic's weights: the actor's, or fp32 beside an actor with adapters."""
    return "fp32" if has_adapter(plan) else plan.states.weights


def _tokens(plan: Plan) -> int:
    """The tokens of a full micro batch."""
    return plan.batch.micro * plan.data.sequence


_BY_TOKENS: Final = (
    f"{_IN_TURNS}: the engine's `use_dynamic_bsz` is left at true, whatever the critic's says, so "
    "that tokens bound a micro batch"
)

_MODEL: Final = (
    same(f"{CRITIC}.model.path", "ppo.critic", _LOADS),
    same(f"{CRITIC}.optim.lr", "ppo.critic_learning_rate", _CONFIG, default=1e-5),
    same(
        f"{CRITIC}.cliprange_value",
        "ppo.value_clip",
        f"{_ESTIMATES} `compute_value_loss`",
        default=0.5,
    ),
    derived(
        f"{CRITIC}.model.trust_remote_code", lambda plan: plan.model.trust_remote_code, _CONFIG
    ),
    constant(f"{CRITIC}.model.use_remove_padding", True, f"{_LOADS}: always flash attention"),
    derived(f"{CRITIC}.model.enable_gradient_checkpointing", recomputes_layers, _CONFIG),
    derived(
        f"{CRITIC}.model.enable_activation_offload",
        lambda plan: plan.activation_checkpointing.offload,
        _CONFIG,
    ),
    constant(
        f"{CRITIC}.model.lora_rank",
        0,
        f"{SOURCE} workers/engine/fsdp/transformer_impl.py `_build_lora_module`: as a causal "
        "model, whose `prepare_inputs_for_generation` PEFT asks for: AttributeError",
    ),
    derived(
        _WEIGHTS,
        critics_weights,
        f"{_CONFIG}: it is trained in full",
    ),
    *(derived(key, lambda plan: plan.generation.offload_training, _IN_TURNS) for key in _OFFLOADS),
    constant(f"{CRITIC}.use_dynamic_bsz", True, _BY_TOKENS),
    derived(f"{CRITIC}.ppo_max_token_len_per_gpu", _tokens, f"{_BY_TOKENS}: in 0.8 for training"),
    derived(
        f"{CRITIC}.ppo_infer_max_token_len_per_gpu",
        _tokens,
        f"{_BY_TOKENS}: for values and, from 0.9 on, for training",
    ),
    derived("trainer.max_critic_ckpt_to_keep", lambda plan: plan.schedule.keep_checkpoints, _YAML),
)

VALUED: Final[tuple[Entry, ...]] = (
    *_OBJECTIVE,
    *_MODEL,
    *_as_the_actor(optimizer(f"{CRITIC}.optim", 1e-5)),
    *_as_the_actor(engine(f"{CRITIC}.fsdp", f"{CRITIC}.strategy")),
)
"""Rows of the file of PPO beside those that it shares with other ways to learn from rewards."""
