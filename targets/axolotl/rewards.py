"""Rows of `rl: grpo` for prompts, answers, the engine that generates them, and rewards."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Entry, Json, derived
from tunec.targets.axolotl.adapter import write_kind
from tunec.targets.axolotl.packages import WRITTEN
from tunec.targets.read_only import split_names
from tunec.targets.rows import is_rewarded, row
from tunec.targets.scripts.trl_rewards import OWN_REWARDS, PACKAGE

_TRL: Final = "axolotl 0.8.1 to 0.19.0 utils/schemas/trl.py `TRLConfig`"
_VLLM: Final = "axolotl 0.8.1 to 0.19.0 utils/schemas/vllm.py `VllmConfig`"
_HANDED: Final = (
    "axolotl 0.13.2 to 0.19.0 core/trainers/grpo/__init__.py `set_training_args_kwargs`; absent it "
    "is what trl 0.27.0 to 1.9.0 trainer/grpo_config.py has"
)
KIND: Final = "rl"
_IS: Final[Mapping[str, Json]] = {KIND: "grpo"}


def _is(found: Mapping[str, Json]) -> bool:
    return found.get(KIND) == "grpo"


def _of_answers(
    keys: tuple[str, ...],
    slots: tuple[str, ...],
    write: Callable[[Plan], Mapping[str, Json]],
    read: Callable[[Mapping[str, Json]], Mapping[str, Any]],
    source: str = f"{_TRL}; {_HANDED}",
    **more: Any,
) -> Entry:
    """A row that only has an effect with GRPO."""
    return row(
        (*keys, KIND),
        slots,
        lambda plan: {**write(plan), **_IS},
        lambda found: read(found) if _is(found) else {},
        source,
        when=is_rewarded,
        **more,
    )


def _same(key: str, slot: str, usual: Json) -> Entry:
    return _of_answers(
        (key,),
        (slot,),
        lambda plan: {key: plan[slot]},
        lambda found: {slot: found.get(key, usual)},
        since=WRITTEN,
    )


# ── the objective ────────────────────────────────────────────────────────────────────────────────

BETA: Final = "trl.beta"


def weight(found: Mapping[str, Json], usual: float = 0.0) -> Json:
    """The weight of the reference, or the usual one: 0 for rewards, as in trl 0.19 and later."""
    return next((found[key] for key in (BETA, "rl_beta") if found.get(key) is not None), usual)


def _reference(found: Mapping[str, Json]) -> Mapping[str, Any]:
    if not weight(found):
        return {"objective.reference": "none"}
    return {"objective.reference": "base" if found.get("adapter") else "resident"}


def _write_reference(plan: Plan) -> Mapping[str, Json]:
    """The keys that determine the trainer's own choice of the reference."""
    return {BETA: plan.objective.beta, **write_kind(plan)}


_REWARDS: Final = "trl.reward_funcs"


def _write_rewards(plan: Plan) -> Mapping[str, Json]:
    named = plan.objective.rewards
    return {_REWARDS: [f"{PACKAGE}{each}" if each in OWN_REWARDS else each for each in named]}


def _read_rewards(found: Mapping[str, Json]) -> Mapping[str, Any]:
    names = split_names(found.get(_REWARDS))
    short = ((each, each.removeprefix(PACKAGE)) for each in names)
    own = tuple(name if name in OWN_REWARDS else each for each, name in short)
    return {"objective.rewards": own} if own else {}


# ── answers ──────────────────────────────────────────────────────────────────────────────────────

_COMPLETION: Final = "trl.max_completion_length"
_PROMPT: Final = "max_prompt_len"


def _read_completion(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The bound on an answer's tokens; by default None is passed on, which is no bound."""
    tokens = found.get(_COMPLETION)
    return {"generation.completion": tokens} if isinstance(tokens, int) else {}


_ENGINE: Final = "generation.engine"
_SHARE: Final = "generation.device_share"
_UTILIZATION: Final = "vllm.gpu_memory_utilization"
_USES, _MODE = "trl.use_vllm", "trl.vllm_mode"


def _write_engine(plan: Plan) -> Mapping[str, Json]:
    engine = plan.generation.engine
    if engine == "transformers":
        return {_USES: False}
    if engine not in ("vllm_colocate", "vllm_server"):
        return {}
    share = {_UTILIZATION: plan.generation.device_share} if _is_beside(plan) else {}
    return {_USES: True, _MODE: engine.removeprefix("vllm_"), **share}


def _read_engine(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The engine; vLLM without a mode is a server: `check_vllm_mode_set`."""
    if found.get(_USES) is not True:
        return {_ENGINE: "transformers", _SHARE: 0.0}
    if found.get(_MODE) != "colocate":
        return {_ENGINE: "vllm_server", _SHARE: 0.0}
    return {_ENGINE: "vllm_colocate", _SHARE: found.get(_UTILIZATION, 0.9)}


def _is_beside(plan: Plan) -> bool:
    return plan.generation.engine == "vllm_colocate"


_SLEEPS: Final = "trl.vllm_enable_sleep_mode"


def _write_sleep(plan: Plan) -> Mapping[str, Json]:
    return {_SLEEPS: True} if plan.generation.engine_sleeps else {}


IN_BOTH: Final = (
    *("vllm_server_host", "vllm_server_port", "vllm_server_timeout", "reward_weights"),
    *("log_completions", "num_completions_to_print", "importance_sampling_level"),
    *("sync_ref_model", "ref_model_mixup_alpha", "ref_model_sync_steps"),
    *("top_p", "top_k", "min_p", "repetition_penalty", "num_iterations", "epsilon"),
    *("epsilon_high", "mask_truncated_completions", "multi_objective_aggregation"),
    *("entropy_coef", "use_adaptive_entropy", "entropy_target", "entropy_coef_delta"),
    *("entropy_coef_min", "entropy_coef_max", "vllm_importance_sampling_clip_min"),
    *("vllm_importance_sampling_clip_max", "vllm_importance_sampling_correction"),
    *("vllm_importance_sampling_mode", "vllm_importance_sampling_cap", "log_multimodal"),
    *("off_policy_mask_threshold", "use_bias_correction_kl", "generation_batch_size"),
    *("chat_template_kwargs", "generation_kwargs"),
)
"""Keys of `trl:` that GRPOConfig has at the top with the same meaning, and that have no slot."""
OF_A_SERVER: Final = (
    *("host", "port", "dtype", "max_model_len", "enable_prefix_caching", "device"),
    *("data_parallel_size", "enable_reasoning", "reasoning_parser", "enforce_eager"),
    *("serve_module", "worker_extension_cls", "tensor_parallel_size", "gpu_memory_utilization"),
)
"""Keys of `vllm:` that only `axolotl vllm-serve` reads, or that are only read with a server."""

REWARDED: Final = (
    _of_answers(
        (BETA, "rl_beta", "adapter"),
        ("objective.reference",),
        _write_reference,
        _reference,
        "trl 0.27.0 to 1.9.0 trainer/grpo_trainer.py: with adapters no second model is kept",
        since=WRITTEN,
    ),
    _same("trl.loss_type", "objective.loss", "dapo"),
    _of_answers(
        (_REWARDS,),
        ("objective.rewards",),
        _write_rewards,
        _read_rewards,
        f"{_TRL}; core/trainers/grpo/__init__.py `get_reward_func`: by its import path",
    ),
    _same("trl.num_generations", "generation.samples", 8),
    _same("trl.temperature", "generation.temperature", 1.0),
    _of_answers(
        (_COMPLETION,),
        ("generation.completion",),
        lambda plan: {_COMPLETION: plan.generation.completion},
        _read_completion,
    ),
    _of_answers(
        (_PROMPT,),
        ("generation.prompt",),
        lambda plan: {_PROMPT: plan.generation.prompt},
        lambda found: {"generation.prompt": found.get(_PROMPT, 512)},
        "axolotl 0.13.2 and 0.14.0 core/builders/rl.py: max_prompt_length; later nothing reads it",
        since=WRITTEN,
        until="0.15",
    ),
    _of_answers(
        (_USES, _MODE, _UTILIZATION),
        (_ENGINE, _SHARE),
        _write_engine,
        _read_engine,
        f"{_TRL}; {_VLLM}; {_HANDED}",
        since=WRITTEN,
    ),
    _of_answers(
        (_SLEEPS,),
        ("generation.engine_sleeps",),
        _write_sleep,
        lambda found: {"generation.engine_sleeps": found.get(_SLEEPS) is True},
        since=WRITTEN,
    ),
    derived(
        "vllm.tensor_parallel_size",
        lambda plan: 1 if _is_beside(plan) else None,
        f"{_HANDED}: unsaid it is None, with which trl divides the processes",
        since=WRITTEN,
        when=is_rewarded,
    ),
    derived(
        "trl.generation_batch_size",
        lambda plan: plan.batch.global_,
        "axolotl 0.17.0 to 0.19.0 utils/schemas/validation.py "
        "`check_grpo_batch_size_divisibility`: unsaid, it counts one process",
        since="0.16",
        when=is_rewarded,
    ),
)
