"""What TRL does without verl's keys for which it has none."""

from collections.abc import Iterable, Iterator
from typing import Final

from tunec.compiler.consumers.moved_keys import Moved, all_gone, gone, one_of, only_here
from tunec.targets.verl.migration import CORRECTION, ESTIMATOR, LOOP, LOSS, MODE, PROMPTS, YAML
from tunec.targets.verl.packages import SOURCE
from tunec.targets.verl.rewards import ACTOR, REFERENCE, ROLLOUT

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


def _each(keys: Iterable[str], instead: str, source: str = YAML) -> Iterator[Moved]:
    return all_gone(keys, source, instead)


_SEVERAL: Final = "no whole number of steps, of `ppo_mini_batch_size` prompts each, trains on it"
_OLD: Final = (
    "verl before 0.8 makes its samples of such columns: TRL takes messages, or prompt and "
)
_ONLY_HERE: Final = (
    only_here(PROMPTS, LOOP, _SEVERAL),
    only_here("data.truncation", YAML, "TRL's GRPO cuts no prompt", "left", "right", "middle"),
    only_here(f"{ACTOR}.entropy_coeff", LOSS, "TRL adds its mean over tokens, this is another"),
    only_here(
        ESTIMATOR,
        f"{SOURCE} trainer/ppo/core_algos.py `AdvantageEstimator`",
        _GROUPS,
        *("gae", "remax", "rloo", "rloo_vectorized", "opo", "gpg", "grpo_passk", "gdpo"),
        *("reinforce_plus_plus", "reinforce_plus_plus_baseline", "optimal_token_baseline"),
        "tir_optimal_token_baseline",
    ),
    only_here(
        MODE,
        f"{SOURCE} trainer/ppo/core_algos.py `register_policy_loss`",
        _POLICY,
        *("gpg", "clip_cov", "kl_cov", "geo_mean", "cispo", "sapo", "bypass_mode"),
    ),
    only_here(
        "algorithm.use_kl_in_reward", LOOP, "TRL's GRPO has the divergence in its loss", True
    ),
    only_here("algorithm.use_pf_ppo", LOOP, "TRL draws no answers again by their rewards", True),
    only_here(CORRECTION, YAML, "TRL corrects vLLM's probabilities by keys of its own"),
    only_here(f"{ROLLOUT}.multi_turn", YAML, _TURNS),
    only_here("reward_model", YAML, _CLASSIFIER),
    only_here("reward.reward_model", YAML, _CLASSIFIER),
    only_here("data.custom_cls", YAML, "TRL's script loads data by `datasets` alone"),
    only_here("data.sampler", YAML, "TRL's script draws prompts at random"),
    *(
        only_here(f"{part}.ulysses_sequence_parallel_size", YAML, _SHARED)
        for part in (ACTOR, REFERENCE, f"{ACTOR}.fsdp_config", f"{REFERENCE}.fsdp_config")
    ),
)

_OF_SFT: Final = f"{SOURCE} trainer/config/sft_trainer_engine.yaml"
_COLUMNS: Final = ("prompt_key", "response_key", "prompt_dict_keys", "response_dict_keys")
_STARTING: Final = tuple(
    _each(
        ("trainer.device", "trainer.resume_mode", "trainer.max_critic_ckpt_to_keep", "hydra"),
        _WAITS,
    )
)
LEAVES: Final = (
    *_STARTING,
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
_OF_ANSWERS: Final = (
    *_STARTING,
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
        LOOP,
        "nothing is evaluated before training",
        changes_nothing=one_of(True, False),
    ),
    *_each(
        ("actor_rollout_ref.nccl_timeout", "trainer.use_legacy_worker_impl"),
        _WAITS,
    ),
    gone(
        f"{ACTOR}.checkpoint.save_contents",
        YAML,
        "checkpoints hold weights and what a run continues with",
    ),
)
REWARDED_LEAVES: Final = (
    *_ONLY_HERE,
    *_each(("critic",), "a critic is trained by `algorithm.adv_estimator: gae` alone"),
    gone("algorithm.kl_ctrl", YAML, "it belongs to `algorithm.use_kl_in_reward`"),
    *_OF_ANSWERS,
)
"""What TRL does without keys of `main_ppo`."""
VALUED_LEAVES: Final = (
    *_OF_ANSWERS,
    *_each(
        (
            *(f"critic.{name}" for name in ("use_dynamic_bsz", "ppo_max_token_len_per_gpu")),
            *(f"critic.ppo_micro_batch_size{end}" for end in ("", "_per_gpu")),
            *(f"critic.forward_micro_batch_size{end}" for end in ("", "_per_gpu")),
            *(f"critic.{name}_max_token_len_per_gpu" for name in ("forward", "ppo_infer")),
        ),
        "the critic takes as many tokens at a time as the model does: the same numbers",
    ),
    gone(
        "trainer.critic_warmup",
        LOOP,
        "the critic is trained alone for no steps",
        changes_nothing=one_of(0),
    ),
    gone("critic.profiler", YAML, _PROFILE),
)
"""What a run does without keys of `main_ppo` that trains a critic."""
