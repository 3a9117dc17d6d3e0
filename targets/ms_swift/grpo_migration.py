"""Keys of `swift rlhf --rlhf_type grpo` without a slot: TRL's keys for them, or why there are none.

Its config is a subclass of trl's GRPOConfig, which has most of these keys.
"""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.consumers.moved_keys import Carry, gone, one_of, only_here
from tunec.compiler.target import Json
from tunec.targets.ms_swift.rewards import KIND, is_rewarding
from tunec.targets.read_only import split_names

_GRPO: Final = (
    "ms-swift 4.0.4 to 4.6.0 rlhf_trainers/arguments.py `GRPOConfig`, args_mixin.py; trl 0.20.0 to "
    "1.16.0 trainer/grpo_config.py `GRPOConfig`"
)
_MIXIN: Final = (
    "ms-swift 4.0.4 to 4.6.0 rlhf_trainers/args_mixin.py `GRPOArgumentsMixin`, grpo_trainer.py"
)
_ROLLOUT: Final = (
    "ms-swift 4.0.4 to 4.6.0 rlhf_trainers/args_mixin.py `RolloutTrainerArgumentsMixin`"
)
_ORM: Final = "ms-swift 4.0.4 to 4.6.0 rewards/orm.py `MathAccuracy`, `Format`"
_REWARDS: Final = "trl 0.18.2 to 1.16.0 scripts/grpo.py `reward_funcs_registry`"

_IN_BOTH: Final = (
    *("log_completions", "num_iterations", "epsilon", "epsilon_high", "delta", "min_p"),
    *("repetition_penalty", "steps_per_generation", "generation_batch_size", "reward_weights"),
    *("top_p", "num_generations_eval", "top_entropy_quantile", "vllm_server_timeout"),
    *("sync_ref_model", "ref_model_sync_steps", "ref_model_mixup_alpha"),
)
"""Keys with the same name and meaning in both programs."""
_OTHERWISE_NAMED: Final = {
    "overlong_filter": "mask_truncated_completions",
    "tau_pos": "sapo_temperature_pos",
    "tau_neg": "sapo_temperature_neg",
}
_SERVER: Final = ("vllm_server_base_url", "vllm_server_host", "vllm_server_port")


def _said(key: str, found: Mapping[str, Json]) -> Json:
    """The value of a key in a run with rewards; None elsewhere."""
    return found.get(key) if is_rewarding(found) else None


def _renamed(key: str, other: str) -> Carry:
    def write(found: Mapping[str, Json]) -> Mapping[str, Json]:
        value = _said(key, found)
        return {} if value is None else {other: value}

    return Carry((key,), write, _GRPO, beside=(KIND,))


def _address(key: str) -> Carry:
    """The address of one server; TRL has no key for several."""

    def write(found: Mapping[str, Json]) -> Mapping[str, Json]:
        value = _said(key, found)
        every = value if isinstance(value, list) else [value]
        return {key: every[0]} if len(every) == 1 and every[0] is not None else {}

    return Carry((key,), write, _GRPO, beside=(KIND,))


def _beside_training(key: str, other: str) -> Carry:
    """A key of vLLM on the training devices; a server gets it when it is started."""

    def write(found: Mapping[str, Json]) -> Mapping[str, Json] | None:
        value = _said(key, found)
        if value is None:
            return {}
        return {other: value} if found.get("vllm_mode") == "colocate" else None

    return Carry((key,), write, _GRPO, beside=(KIND, "vllm_mode"))


# ── words with other values ──────────────────────────────────────────────────────────────────────


def _most(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """The number of candidates: without a bound it is -1 in ms-swift, 0 in TRL."""
    value = _said("top_k", found)
    return {"top_k": max(value, 0)} if isinstance(value, int) else {}


def _scales(found: Mapping[str, Json]) -> Mapping[str, Json]:
    value = _said("scale_rewards", found)
    return {"scale_rewards": value} if value in ("group", "batch", "none") else {}


def _levels(found: Mapping[str, Json]) -> Mapping[str, Json]:
    value = _said("importance_sampling_level", found)
    return {"importance_sampling_level": value} if value in ("token", "sequence") else {}


def _thinking(found: Mapping[str, Json]) -> Mapping[str, Json]:
    value = _said("enable_thinking", found)
    return {"chat_template_kwargs": {"enable_thinking": value}} if value is not None else {}


def _stops(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """The stop words, if vLLM generates: `stop` is one of its sampling parameters."""
    words = split_names(_said("stop_words", found))
    is_known = bool(words) and found.get("use_vllm") is True
    return {"generation_kwargs": {"stop": [*words]}} if is_known else {}


_LOSSES: Final = ("cispo", "sapo")
"""Losses of both programs that have no slot value."""


def _loss(found: Mapping[str, Json]) -> Mapping[str, Json]:
    names = split_names(_said("loss_type", found))
    return {"loss_type": names[0]} if len(names) == 1 and names[0] in _LOSSES else {}


_CORRECTION: Final = "vllm_importance_sampling_correction"


def _corrects(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """Whether vLLM's probabilities are corrected: ms-swift does so only if a key sets the mode."""
    if _said("use_vllm", found) is not True:
        return {}
    mode = found.get("rollout_importance_sampling_mode")
    if mode is None:
        return {_CORRECTION: False}
    bound = found.get("rollout_importance_sampling_threshold", 2.0)
    return {
        _CORRECTION: True,
        "vllm_importance_sampling_mode": mode,
        "vllm_importance_sampling_clip_max": bound,
    }


OWN: Final[Mapping[str, str]] = {"accuracy": "accuracy_reward"}
"""Rewards of both programs: math-verify checks an answer against the column `solution`."""


def _rewards(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """The rewards, if TRL has all of them."""
    names = split_names(_said("reward_funcs", found))
    return {"reward_funcs": [OWN[each] for each in names]} if {*names} <= {*OWN} else {}


_AS_HERE: Final[Mapping[str, Json]] = {
    "advantage_estimator": "grpo",
    "kl_in_reward": False,
    "dynamic_sample": False,
    "async_generate": False,
}
"""Values with which ms-swift does what TRL always does."""


def _by_itself(key: str, usual: Json) -> Carry:
    def write(found: Mapping[str, Json]) -> Mapping[str, Json] | None:
        return None if _said(key, found) == usual else {}

    return Carry((key,), write, _MIXIN, beside=(KIND,))


CARRIES: Final = (
    *(_renamed(key, key) for key in _IN_BOTH),
    *(_renamed(key, other) for key, other in _OTHERWISE_NAMED.items()),
    *(_by_itself(key, usual) for key, usual in _AS_HERE.items()),
    *(_address(key) for key in _SERVER),
    _beside_training("vllm_tensor_parallel_size", "vllm_tensor_parallel_size"),
    _beside_training("vllm_max_model_len", "vllm_max_model_length"),
    Carry(("top_k",), _most, _GRPO, beside=(KIND,)),
    Carry(("scale_rewards",), _scales, _GRPO, beside=(KIND,)),
    Carry(("importance_sampling_level",), _levels, _GRPO, beside=(KIND,)),
    Carry(
        ("enable_thinking",),
        _thinking,
        "ms-swift 4.0.4 to 4.6.0 arguments/base_args/template_args.py; trl 0.25.0 to 1.16.0 "
        "trainer/grpo_config.py `chat_template_kwargs`",
        beside=(KIND,),
    ),
    Carry(
        ("stop_words",),
        _stops,
        f"{_ROLLOUT}; trl 0.27.0 to 1.16.0 generation/vllm_generation.py: SamplingParams",
        beside=(KIND, "use_vllm"),
    ),
    Carry(("loss_type",), _loss, _GRPO, beside=(KIND,), slots=("objective.loss",)),
    Carry(
        ("use_vllm", "rollout_importance_sampling_mode", "rollout_importance_sampling_threshold"),
        _corrects,
        f"{_MIXIN}; trl 0.23.0 to 1.16.0: on by default",
        beside=(KIND,),
    ),
    Carry(
        ("reward_funcs",),
        _rewards,
        f"{_ORM}; {_REWARDS}",
        beside=(KIND,),
        slots=("objective.rewards",),
    ),
)


def foreign(found: Mapping[str, Json]) -> Any:
    """Rewards that differ from TRL's of the same kind, with the difference."""
    if is_rewarding(found) and "accuracy" in split_names(found.get("reward_funcs")):
        yield (
            "reward_funcs",
            (
                "ms-swift's accuracy compares what stands in <answer> where an answer has it, and "
                "gives 0 where a solution cannot be read: trl's accuracy_reward compares the whole "
                "answer, and leaves such samples out"
            ),
        )


_TURNS: Final = "TRL's script runs one turn for each prompt: several turns need one's own"
_TEACHER: Final = "TRL's GRPO has no teacher"
_CHORD: Final = "TRL's GRPO trains on answers alone, without given ones beside them"
_FIPO: Final = "TRL's GRPO has no such loss"
_ADVANTAGE: Final = "TRL's GRPO compares answers within their group: `trl rloo` is another script"
_ONLY_HERE: Final = (
    *(
        only_here(key, _MIXIN, _TURNS)
        for key in (
            *("multi_turn_scheduler", "max_turns", "use_gym_env", "gym_env"),
            "completion_length_limit_scope",
        )
    ),
    *(
        only_here(key, "ms-swift 4.0.4 to 4.6.0 arguments/rlhf_args.py", _TEACHER)
        for key in (
            "teacher_model",
            "teacher_model_server",
            "teacher_deepspeed",
            "teacher_adapters",
        )
    ),
    *(
        only_here(f"chord_{key}", _MIXIN, _CHORD)
        for key in (
            *("sft_dataset", "sft_per_device_train_batch_size", "enable_phi_function"),
            *("mu_warmup_steps", "mu_decay_steps", "mu_peak", "mu_valley"),
        )
    ),
    *(
        only_here(f"fipo_{key}", _MIXIN, _FIPO)
        for key in ("decay_rate", "clip_range", "clip_high_only", "safety_threshold")
    ),
    only_here("loss_type", _MIXIN, _FIPO, "fipo", "real"),
    only_here("advantage_estimator", _MIXIN, _ADVANTAGE, "rloo", "reinforce_plus_plus"),
    only_here("kl_in_reward", _MIXIN, "TRL's GRPO has the divergence in its loss", True),
    only_here(
        "dynamic_sample", _MIXIN, "TRL draws no new prompts for groups without a spread", True
    ),
    only_here("async_generate", _ROLLOUT, "TRL's script writes answers in turn", True),
    only_here("scale_rewards", _MIXIN, "TRL weighs rewards together before it scales", "gdpo"),
    only_here(
        "importance_sampling_level", _MIXIN, "TRL knows tokens and sequences", "sequence_token"
    ),
    only_here("reward_model_plugin", _MIXIN, "TRL takes a reward model as a classifier alone"),
)
_SAME: Final = "it changes where weights and answers are, and no answer"
_LOGS: Final = "TRL logs its own metrics"
_COLUMNS: Final = "columns keep the names that the data has"

LEAVES: Final = (
    *_ONLY_HERE,
    *(gone(key, _ROLLOUT, _SAME) for key in ("move_model_batches", "vllm_enable_lora")),
    *(
        gone(key, _ROLLOUT, "vLLM runs as it does by default: the same answers")
        for key in (
            *("vllm_enforce_eager", "vllm_enable_prefix_caching", "vllm_max_num_seqs"),
            *("vllm_disable_custom_all_reduce", "vllm_use_async_engine"),
            *("vllm_limit_mm_per_prompt", "vllm_max_lora_rank"),
        )
    ),
    gone("vllm_server_pass_dataset", _MIXIN, "one turn needs no column at the server"),
    gone("log_entropy", _MIXIN, _LOGS),
    gone("log_rollout_offpolicy_metrics", _MIXIN, _LOGS),
    gone("dataset_num_proc", _GRPO, "one process prepares the samples"),
    gone(
        "columns",
        "ms-swift 4.0.4 to 4.6.0 arguments/base_args/data_args.py",
        _COLUMNS,
        changes_nothing=one_of(None),
    ),
)
"""Keys that TRL's file lacks, and what TRL does instead."""
