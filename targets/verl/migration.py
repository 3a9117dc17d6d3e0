"""verl's keys without a slot: TRL's keys for them, or what TRL does instead."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from tunec.compiler.consumers.moved_keys import Carry, Moved, gone, one_of, only_here
from tunec.compiler.target import Json
from tunec.targets.verl.packages import SOURCE
from tunec.targets.verl.rewards import ACTOR, REFERENCE, ROLLOUT

Values = Mapping[str, Json]

_YAML: Final = f"{SOURCE} trainer/config/ppo_trainer.yaml"
_LOSS: Final = (
    f"{SOURCE} trainer/ppo/core_algos.py `compute_policy_loss_vanilla`, `compute_policy_loss_gspo`,"
    " workers/utils/losses.py `ppo_loss`; trl 0.22.0 to 1.16.0 trainer/grpo_trainer.py "
    "`_compute_loss`"
)
_LOOP: Final = (
    "verl 0.8.0 trainer/ppo/ray_trainer.py, 0.9.0 to 0.9.1 trainer/ppo/v1/trainer_base.py `fit`"
)
_SAMPLING: Final = f"{SOURCE} workers/config/rollout.py; trl 0.18.2 to 1.16.0 grpo_config.py"
_ESTIMATOR: Final = "algorithm.adv_estimator"
_MODE: Final = f"{ACTOR}.policy_loss.loss_mode"
_AVERAGE: Final = f"{ACTOR}.loss_agg_mode"
_CORRECTION: Final = "algorithm.rollout_correction"


def _is_vanilla(found: Values) -> bool:
    return found.get(_MODE) in (None, "vanilla")


def _in_grpo(
    key: str, write: Callable[[Values], Values | None], source: str, *beside: str, **more: Any
) -> Carry:
    """A key that counts in a run that compares answers within their group."""

    def written(found: Values) -> Values | None:
        return write(found) if found.get(_ESTIMATOR) == "grpo" else {}

    around = tuple(each for each in (_ESTIMATOR, *beside) if each != key)
    return Carry((key,), written, source, beside=around, **more)


def _renamed(key: str, other: str, source: str, *beside: str) -> Carry:
    def write(found: Values) -> Values:
        return {} if found[key] is None else {other: found[key]}

    return _in_grpo(key, write, source, *beside)


# ── the loss ─────────────────────────────────────────────────────────────────────────────────────


def _bounds(key: str, other: str) -> Carry:
    """A bound of the ratio, which each loss counts from one."""

    def write(found: Values) -> Values:
        is_same = _is_vanilla(found) or found.get(_MODE) == "gspo"
        return {other: found[key]} if is_same and found[key] is not None else {}

    return _in_grpo(key, write, _LOSS, _MODE)


def _bounded_twice(found: Values) -> Values:
    """The bound for answers that are worse than their group: always there in verl, never in TRL."""
    return {"delta": found.get(f"{ACTOR}.clip_ratio_c") or 3.0} if _is_vanilla(found) else {}


def _uncorrected(found: Values) -> Values:
    """verl scores answers with the trained model, unless a key asks for another correction."""
    is_own = any(found.get(f"{_CORRECTION}.{key}") for key in ("rollout_is", "rollout_rs"))
    is_scored = not found.get(f"{_CORRECTION}.bypass_mode") and not is_own
    return {"vllm_importance_sampling_correction": False} if is_scored else {}


def _by_sequence(found: Values) -> Values:
    is_mean = found.get(_AVERAGE) == "seq-mean-token-mean"
    return {"importance_sampling_level": "sequence"} if found[_MODE] == "gspo" and is_mean else {}


def _entropy(found: Values) -> Values:
    """The bonus by the mean over tokens, as TRL has it whatever the loss."""
    key = f"{ACTOR}.entropy_coeff"
    is_mean = found.get(_AVERAGE) in (None, "token-mean")
    return {"entropy_coef": found[key]} if found[key] and is_mean else {}


def _scales(found: Values) -> Values | None:
    is_scaled = found["algorithm.norm_adv_by_std_in_grpo"]
    return {"scale_rewards": "none"} if is_scaled is False else None


_OF_THE_LOSS: Final = (
    _bounds(f"{ACTOR}.clip_ratio_low", "epsilon"),
    _bounds(f"{ACTOR}.clip_ratio_high", "epsilon_high"),
    _in_grpo(_ESTIMATOR, _bounded_twice, _LOSS, _MODE, f"{ACTOR}.clip_ratio_c"),
    _renamed(f"{ACTOR}.clip_ratio_c", "delta", _LOSS),
    _in_grpo(
        _ESTIMATOR,
        _uncorrected,
        f"{SOURCE} trainer/config/algorithm.py `RolloutCorrectionConfig`; trl 0.23.0 to 1.16.0: on "
        "by default",
        *(f"{_CORRECTION}.{key}" for key in ("rollout_is", "rollout_rs", "bypass_mode")),
    ),
    _in_grpo(_MODE, _by_sequence, _LOSS, _AVERAGE),
    _in_grpo(f"{ACTOR}.entropy_coeff", _entropy, _LOSS, _AVERAGE),
    _in_grpo(
        "algorithm.norm_adv_by_std_in_grpo",
        _scales,
        f"{SOURCE} trainer/ppo/core_algos.py `compute_grpo_outcome_advantage`; trl "
        "trainer/grpo_config.py `scale_rewards`",
    ),
    _renamed(f"{ACTOR}.ppo_epochs", "num_iterations", f"{_YAML}; trl trainer/grpo_config.py"),
)


# ── batches and answers ──────────────────────────────────────────────────────────────────────────

_PROMPTS: Final = "data.train_batch_size"
_MINI: Final = f"{ACTOR}.ppo_mini_batch_size"


def _generated(found: Values) -> Values:
    """The answers of one generation, if several steps train on them."""
    prompts, mini = found.get(_PROMPTS, 1024), found.get(_MINI, 256)
    answers = found.get(f"{ROLLOUT}.n", 1)
    is_known = all(isinstance(each, int) for each in (prompts, mini, answers))
    if not is_known or prompts == mini or prompts % mini:
        return {}
    return {"generation_batch_size": prompts * answers}


def _most(found: Values) -> Values:
    """The number of candidates: without a bound it is -1 in verl, 0 in TRL."""
    value = found[f"{ROLLOUT}.top_k"]
    return {"top_k": max(value, 0)} if isinstance(value, int) else {}


_OF_ANSWERS: Final = (
    *(
        Carry(
            (key,),
            _generated,
            f"{_LOOP}; trl 0.18.2 to 1.16.0 trainer/grpo_config.py `GRPOConfig.__post_init__`",
            beside=(other, f"{ROLLOUT}.n"),
        )
        for key, other in ((_PROMPTS, _MINI), (_MINI, _PROMPTS))
    ),
    _renamed(f"{ROLLOUT}.top_p", "top_p", _SAMPLING),
    _in_grpo(f"{ROLLOUT}.top_k", _most, _SAMPLING),
    _renamed(f"{ROLLOUT}.repetition_penalty", "repetition_penalty", _SAMPLING),
    _renamed(f"{ROLLOUT}.max_model_len", "vllm_max_model_length", _SAMPLING),
    _renamed(f"{ROLLOUT}.tensor_model_parallel_size", "vllm_tensor_parallel_size", _SAMPLING),
)


# ── the loop ─────────────────────────────────────────────────────────────────────────────────────

_SAVES: Final = "trainer.save_freq"
_ANY: Final = ("trainer.total_epochs", "data.train_files", "data.max_length", _ESTIMATOR)
"""Keys of which almost every file has one."""


def _never(found: Values) -> Values:
    """No checkpoint before the end: verl's default."""
    every = found.get(_SAVES, -1)
    is_never = isinstance(every, int) and every < 1
    return {"save_strategy": "no"} if is_never else {}


def _named(found: Values) -> Values:
    name = found["trainer.experiment_name"]
    return {"run_name": name} if isinstance(name, str) else {}


def _in_order(found: Values) -> Values | None:
    return {"shuffle_dataset": False} if found["data.shuffle"] is False else None


def _is_never_cut(found: Values) -> Values | None:
    """How a prompt is cut has no effect if longer ones are left out."""
    return None if found.get("data.filter_overlong_prompts") is True else {}


def _at_first(found: Values) -> Values:
    """Evaluation before training, if there is any."""
    every = found.get("trainer.test_freq", -1)
    is_asked = isinstance(every, int) and every > 0 and found["trainer.val_before_train"] is True
    return {"eval_on_start": True} if is_asked else {}


def _answers_of_each(found: Values) -> Values:
    """Answers to each held-out prompt: one unless a key says otherwise."""
    every, number = found.get("trainer.test_freq", -1), found.get(f"{ROLLOUT}.val_kwargs.n", 1)
    is_evaluated = isinstance(every, int) and every > 0 and isinstance(number, int)
    return {"num_generations_eval": number} if is_evaluated else {}


_SAVING: Final = Carry(
    (_SAVES,),
    _never,
    f"{_LOOP}, trainer/sft_trainer.py `fit`: below 1 none; transformers trainer.py",
    slots=("schedule.save_steps",),
)
_OF_BOTH: Final = (
    _SAVING,
    *(Carry((key,), _never, _SAVING.source, beside=(_SAVES,), slots=_SAVING.slots) for key in _ANY),
    Carry(
        ("trainer.experiment_name",),
        _named,
        f"{SOURCE} utils/tracking.py `Tracking`; transformers `run_name`",
    ),
)
CARRIES: Final = _OF_BOTH
"""The keys of the SFT trainer."""
REWARDED_CARRIES: Final = (
    *_OF_BOTH,
    *_OF_THE_LOSS,
    *_OF_ANSWERS,
    _in_grpo("data.shuffle", _in_order, f"{_YAML}; trl trainer/grpo_config.py `shuffle_dataset`"),
    Carry(
        ("data.truncation",),
        _is_never_cut,
        f"{SOURCE} utils/dataset/rl_dataset.py `maybe_filter_out_long_prompts`",
        beside=("data.filter_overlong_prompts",),
    ),
    Carry(
        ("trainer.val_before_train",),
        _at_first,
        f"{_LOOP}; transformers `eval_on_start`",
        beside=("trainer.test_freq",),
    ),
    _in_grpo(
        _ESTIMATOR,
        _answers_of_each,
        f"{_LOOP} `_validate`; trl 0.27.0 to 1.16.0 trainer/grpo_config.py",
        *("trainer.test_freq", f"{ROLLOUT}.val_kwargs.n"),
    ),
)
"""The keys of `main_ppo`."""


# ── what TRL has no key for ──────────────────────────────────────────────────────────────────────

_GROUPS: Final = (
    "TRL's GRPO compares answers within their group: it trains no critic, and other estimators are "
    "other scripts, such as `trl rloo`"
)
_POLICY: Final = "TRL's GRPO has no such loss"
_TURNS: Final = "TRL's script runs one turn for each prompt: several turns need one's own"
_CLASSIFIER: Final = (
    "TRL takes a reward model by its name in `reward_funcs`: --set objective.rewards=NAME"
)
_SHARED: Final = "a sequence is split over devices, of which there is no plan: set it to 1"
_SCORED: Final = "answers are scored as many at a time as they are trained: the same numbers"
_ENGINE: Final = "vLLM runs as it does by default: the same answers"
_PROFILE: Final = "no profile is written"
_EVALUATED: Final = "held-out prompts are answered as those for training are: it evaluates alone"
_WAITS: Final = "the same training, by other ways of starting and waiting"
_MEMORY: Final = "it changes where weights and numbers are, and no result"


def _each(keys: Iterable[str], instead: str, source: str = _YAML) -> Iterator[Moved]:
    yield from (gone(key, source, instead) for key in keys)


_SEVERAL: Final = "no whole number of steps, of `ppo_mini_batch_size` prompts each, trains on it"
_OLD: Final = (
    "verl before 0.8 makes its samples of such columns: TRL takes messages, or prompt and "
)
_ONLY_HERE: Final = (
    only_here(_PROMPTS, _LOOP, _SEVERAL),
    only_here("data.truncation", _YAML, "TRL's GRPO cuts no prompt", "left", "right", "middle"),
    only_here(f"{ACTOR}.entropy_coeff", _LOSS, "TRL adds its mean over tokens, this is another"),
    only_here(
        _ESTIMATOR,
        f"{SOURCE} trainer/ppo/core_algos.py `AdvantageEstimator`",
        _GROUPS,
        *("gae", "remax", "rloo", "rloo_vectorized", "opo", "gpg", "grpo_passk", "gdpo"),
        *("reinforce_plus_plus", "reinforce_plus_plus_baseline", "optimal_token_baseline"),
        "tir_optimal_token_baseline",
    ),
    only_here(
        _MODE,
        f"{SOURCE} trainer/ppo/core_algos.py `register_policy_loss`",
        _POLICY,
        *("gpg", "clip_cov", "kl_cov", "geo_mean", "cispo", "sapo", "bypass_mode"),
    ),
    only_here(
        "algorithm.use_kl_in_reward", _LOOP, "TRL's GRPO has the divergence in its loss", True
    ),
    only_here("algorithm.use_pf_ppo", _LOOP, "TRL draws no answers again by their rewards", True),
    only_here(_CORRECTION, _YAML, "TRL corrects vLLM's probabilities by keys of its own"),
    only_here(f"{ROLLOUT}.multi_turn", _YAML, _TURNS),
    only_here("reward_model", _YAML, _CLASSIFIER),
    only_here("reward.reward_model", _YAML, _CLASSIFIER),
    only_here("data.custom_cls", _YAML, "TRL's script loads data by `datasets` alone"),
    only_here("data.sampler", _YAML, "TRL's script draws prompts at random"),
    *(
        only_here(f"{part}.ulysses_sequence_parallel_size", _YAML, _SHARED)
        for part in (ACTOR, REFERENCE, f"{ACTOR}.fsdp_config", f"{REFERENCE}.fsdp_config")
    ),
)

_OF_SFT: Final = f"{SOURCE} trainer/config/sft_trainer_engine.yaml"
_COLUMNS: Final = ("prompt_key", "response_key", "prompt_dict_keys", "response_dict_keys")
LEAVES: Final = (
    *_each(
        ("trainer.device", "trainer.resume_mode", "trainer.max_critic_ckpt_to_keep", "hydra"),
        _WAITS,
    ),
    *(
        only_here(f"data.{key}", _OF_SFT, f"{_OLD}completion, which the data must hold")
        for key in _COLUMNS
    ),
    only_here(
        "model.partial_pretrain",
        _OF_SFT,
        "verl before 0.8 names the model so: --set model.path=NAME",
    ),
    only_here(
        "data.micro_batch_size",
        _OF_SFT,
        "verl before 0.8 counts the samples of all devices: --set batch.micro=NUMBER",
    ),
)
"""What TRL does without keys of the SFT trainer."""
REWARDED_LEAVES: Final = (
    *_ONLY_HERE,
    *LEAVES[:4],
    *_each(("critic",), "a critic is trained by `algorithm.adv_estimator: gae` alone"),
    gone("algorithm.kl_ctrl", _YAML, "it belongs to `algorithm.use_kl_in_reward`"),
    *_each(
        (
            *(f"{part}.log_prob_micro_batch_size" for part in (ROLLOUT, REFERENCE)),
            *(f"{part}.log_prob_micro_batch_size_per_gpu" for part in (ROLLOUT, REFERENCE)),
            *(f"{part}.log_prob_use_dynamic_bsz" for part in (ROLLOUT, REFERENCE)),
            *(f"{part}.log_prob_max_token_len_per_gpu" for part in (ROLLOUT, REFERENCE)),
        ),
        _SCORED,
    ),
    *_each(
        (
            *(f"{ACTOR}.use_dynamic_bsz", f"{ACTOR}.ppo_max_token_len_per_gpu"),
            f"{ACTOR}.ppo_micro_batch_size",
        ),
        "the answers of a device are counted: the same steps, in other parts",
    ),
    *_each(
        (
            *(f"{REFERENCE}.fsdp_config.{name}" for name in ("param_offload", "forward_prefetch")),
            *(f"{REFERENCE}.strategy", f"{ROLLOUT}.layered_summon", f"{ROLLOUT}.load_format"),
            *("actor_rollout_ref.model.use_shm", f"{ROLLOUT}.multi_stage_wake_up"),
            *("actor_rollout_ref.model.use_remove_padding", f"{ROLLOUT}.checkpoint_engine"),
            *("actor_rollout_ref.model.use_fused_kernels", f"{ACTOR}.use_prefix_grouper"),
            *("actor_rollout_ref.model.fused_kernel_options", f"{ACTOR}.entropy_checkpointing"),
            *(f"{part}.use_torch_compile" for part in (ACTOR, REFERENCE)),
            *(f"{part}.entropy_from_logits_with_chunking" for part in (ACTOR, REFERENCE)),
            f"{REFERENCE}.entropy_checkpointing",
        ),
        _MEMORY,
    ),
    *_each(
        (
            *(f"{ROLLOUT}.{name}" for name in ("enable_chunked_prefill", "enforce_eager", "mode")),
            *(f"{ROLLOUT}.{name}" for name in ("max_num_batched_tokens", "max_num_seqs")),
            f"{ROLLOUT}.enable_prefix_caching",
            f"{ROLLOUT}.engine_kwargs.vllm.disable_mm_preprocessor_cache",
            f"{ROLLOUT}.engine_kwargs.vllm.compilation_config",
            *(f"{ROLLOUT}.engine_kwargs.{name}" for name in ("sglang.attention_backend", "trtllm")),
            *(f"{ROLLOUT}.{name}" for name in ("sglang_rollout_mode", "server")),
        ),
        _ENGINE,
    ),
    *_each(
        (
            *("global_profiler", f"{ACTOR}.profiler", f"{REFERENCE}.profiler", f"{ROLLOUT}.trace"),
            "trainer.log_val_generations",
        ),
        _PROFILE,
    ),
    *_each((f"{ROLLOUT}.val_kwargs", "data.val_batch_size"), _EVALUATED),
    gone(
        "trainer.val_before_train",
        _LOOP,
        "nothing is evaluated before training",
        changes_nothing=one_of(True, False),
    ),
    *_each(
        ("actor_rollout_ref.nccl_timeout", "trainer.use_legacy_worker_impl"),
        _WAITS,
    ),
    gone(
        f"{ACTOR}.checkpoint.save_contents",
        _YAML,
        "checkpoints hold weights and what a run continues with",
    ),
)
"""What TRL does without keys of `main_ppo`."""
