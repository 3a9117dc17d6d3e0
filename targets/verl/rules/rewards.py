"""Settings of `main_ppo` that its checks refuse, and some that have no effect."""

from typing import Final

from tunec.compiler.lints.rows import Row, rows
from tunec.targets.verl.rules.classes import OF_DISTILLATION, OF_ROLLOUT

_ACTOR: Final = "actor_rollout_ref.actor"
_REF: Final = "actor_rollout_ref.ref"
_ROLLOUT: Final = "actor_rollout_ref.rollout"
_MODEL: Final = "actor_rollout_ref.model"
_REFUSED: Final = "verl refuses {0.path} {0.value}"
_BY_TOKENS: Final = f"no {_ACTOR}.use_dynamic_bsz=true"
_WORDS: Final = (
    "gae|grpo|reinforce_plus_plus|reinforce_plus_plus_baseline|remax|rloo|opo|grpo_passk|gpg|"
    "rloo_vectorized|grpo_vectorized|optimal_token_baseline|tir_optimal_token_baseline|gdpo"
)


def _both(section: str, name: str) -> Row:
    """The batch size over all devices is set beside the one of each device, which replaced it."""
    return Row(
        f"verl:{section}.{name} & {section}.{name}_per_gpu & {_BY_TOKENS}",
        "{0.key} cannot be combined with {1.key}",
        "given twice",
        "the first counts all devices, and is deprecated",
        f"remove {name}",
    )


def _missing(section: str, name: str, *beside: str) -> Row:
    """The micro batch size is missing; another file may still set it."""
    return Row(
        " & ".join(
            (
                f"verl:{_MODEL}.path",
                f"no {section}.{name}_per_gpu|{section}.{name}",
                _BY_TOKENS,
                *beside,
            )
        ),
        f"{section}.{name}_per_gpu is missing",
        "of this model",
        "no number of samples for each device is given",
        f"write {section}.{name}_per_gpu, or {_ACTOR}.use_dynamic_bsz: true",
        severity="warning",
    )


REWARDED_SETTING_REFUSED: Final = rows(
    "rewarded-setting-refused",
    "error",
    "parse",
    consumers=("verl",),
    rows=(
        _both(_ACTOR, "ppo_micro_batch_size"),
        _both(_ROLLOUT, "log_prob_micro_batch_size"),
        _both(_REF, "log_prob_micro_batch_size"),
        _missing(_ACTOR, "ppo_micro_batch_size"),
        _missing(_ROLLOUT, "log_prob_micro_batch_size"),
        _missing(_REF, "log_prob_micro_batch_size", f"{_ACTOR}.use_kl_loss=true"),
        Row(
            f"verl:{_MODEL}.path & no {_ROLLOUT}.name",
            f"{_ROLLOUT}.name is missing",
            "of this model",
            "no engine that generates the answers is given",
            f"write {_ROLLOUT}.name: vllm, or sglang",
            severity="warning",
        ),
        Row(
            f"verl:trainer.n_gpus_per_node=1 & {_MODEL}.path & no trainer.nnodes>1"
            f" & no {_ROLLOUT}.tensor_model_parallel_size",
            "the rollout shares the model between two devices, and the run has one",
            "one device",
            f"{_ROLLOUT}.tensor_model_parallel_size is 2 by default, and has to divide the devices",
            f"write {_ROLLOUT}.tensor_model_parallel_size: 1",
            consequence="init",
        ),
        Row(
            f"verl:{_ROLLOUT}.mode=sync",
            _REFUSED,
            "not taken",
            "only servers generate answers",
            "remove mode",
        ),
        Row(
            f"verl:{_ROLLOUT}.name!=vllm|sglang|trtllm",
            _REFUSED,
            "not taken",
            "no other engine generates the answers",
            "write vllm, or sglang",
            consequence="init",
        ),
        Row(
            f"verl:{_ROLLOUT}.load_format=dummy_dtensor|dummy_hf|dummy_megatron|dtensor|megatron",
            _REFUSED,
            "not taken",
            "the value is passed to the engine that generates the answers, and none knows it",
            "remove load_format, or write dummy",
            consequence="init",
        ),
        Row(
            f"verl:{_ACTOR}.loss_agg_mode!=token-mean|token-sum|seq-mean-token-sum|"
            "seq-mean-token-mean|seq-mean-token-sum-norm",
            _REFUSED,
            "not taken",
            help="write token-mean, seq-mean-token-mean or seq-mean-token-sum-norm",
        ),
        Row(
            f"verl:algorithm.adv_estimator!={_WORDS}",
            _REFUSED,
            "not taken",
            "no estimator of verl's own has that name",
            "write grpo, gae, rloo or reinforce_plus_plus",
            severity="warning",
        ),
        Row(
            f"verl:{_ACTOR}.optim.lr_scheduler_type!=constant|cosine",
            _REFUSED,
            "not taken",
            "the rate falls along a cosine, or stays constant",
            "write constant or cosine",
        ),
        Row(
            f"verl:{_ACTOR}.ulysses_sequence_parallel_size>1",
            "{0.key} {0.value} cannot be combined with {1.path} {1.value}",
            "refused",
            "ranks split one sequence of all samples",
            "remove model.use_remove_padding, which is true by default",
            beside=(f"{_MODEL}.use_remove_padding=false",),
        ),
        Row(
            f"verl:{_MODEL}.lora_rank>512 & {_ROLLOUT}.name=vllm",
            "{0.path} {0.value} is more than vLLM takes",
            "not taken",
            "vLLM holds adapters of rank 512 at most",
            "write 512 or less",
        ),
        Row(
            f"verl:{_MODEL}.use_fused_kernels=true",
            "{0.key} {0.value} fails beside {1.key} {1.value}",
            "its first batch has another shape",
            "the output of the fused loss has no padding to remove",
            "remove use_remove_padding, which is true by default",
            beside=(f"{_MODEL}.use_remove_padding=false",),
            since="verl<0.9",
            consequence="step",
        ),
        Row(
            f"verl:{_ROLLOUT}.temperature<=0 & {_ROLLOUT}.val_kwargs.do_sample=true",
            "{1.path} {1.value} cannot be combined with {0.path} {0.value}",
            "nothing is sampled",
            "answers in validation are to be sampled",
            "write a temperature above 0, or val_kwargs.do_sample: false",
        ),
        Row(
            "verl:critic.model.lora_rank>0 & algorithm.adv_estimator=gae",
            "{0.path} {0.value} fails: a critic takes no adapters",
            "adapters of the critic",
            "PEFT takes it for a causal model, and asks for prepare_inputs_for_generation, "
            "which a model with a value for each token has not",
            "remove it, so that the critic is trained in full",
            since="verl>=0.8",
            consequence="init",
        ),
        *OF_ROLLOUT,
        *OF_DISTILLATION,
    ),
)

_CRITIC: Final = "critic"
_INFER: Final = f"{_CRITIC}.ppo_infer_max_token_len_per_gpu"
_VALUES: Final = f"no {_INFER} & algorithm.adv_estimator=gae & no {_CRITIC}.enable=false"
_OF_CRITICS: Final = (
    Row(
        f"verl:{_CRITIC}.ppo_micro_batch_size_per_gpu? & {_VALUES} & "
        f"no {_CRITIC}.fsdp.use_dynamic_bsz=false & no {_CRITIC}.use_dynamic_bsz=true",
        "{0.path} bounds no batch of the critic",
        "without effect",
        "the critic's engine counts tokens, whatever critic.use_dynamic_bsz says: 32768 at most on "
        "a device by default",
        f"write {_CRITIC}.use_dynamic_bsz: true, and the tokens as {_CRITIC}."
        "ppo_max_token_len_per_gpu and ppo_infer_max_token_len_per_gpu",
        since="verl>=0.8",
    ),
    Row(
        f"verl:{_CRITIC}.ppo_max_token_len_per_gpu? & {_VALUES} & no trainer.use_v1=false",
        "{0.path} has no effect",
        "without effect",
        "the critic's engine is given ppo_infer_max_token_len_per_gpu for training too, 32768 by "
        "default",
        f"write {_INFER}: {{0.value}}",
        since="verl>=0.9",
    ),
    Row(
        f"verl:{_CRITIC}.grad_clip!=1.0 & algorithm.adv_estimator=gae",
        "{0.path} has no effect",
        "without effect",
        "the engine clips gradients at optim.clip_grad, 1.0 by default",
        f"write {_CRITIC}.optim.clip_grad",
    ),
    Row(
        f"verl:{_CRITIC}.forward_micro_batch_size_per_gpu? & algorithm.adv_estimator=gae",
        "{0.path} has no effect",
        "without effect",
        "values are computed in batches of ppo_infer_max_token_len_per_gpu tokens",
        f"write {_INFER}",
        since="verl>=0.8",
    ),
)
"""verl 0.8.0 trainer/ppo/ray_trainer.py `init_workers`, 0.9.0 to 0.9.1 trainer/ppo/v1/
trainer_base.py `_setup`; workers/config/engine.py `EngineConfig.use_dynamic_bsz`, true;
workers/engine_workers.py `TrainingWorker.train_batch`, `infer_batch`."""

REWARDED_SETTING_UNREAD: Final = rows(
    "rewarded-setting-unread",
    "warning",
    "silent",
    consumers=("verl",),
    rows=(
        Row(
            f"verl:{_ACTOR}.grad_clip!=1.0",
            "{0.path} has no effect",
            "without effect",
            "the engine clips gradients at optim.clip_grad, 1.0 by default",
            "write actor.optim.clip_grad",
        ),
        Row(
            f"verl:{_ACTOR}.kl_loss_coef>0 & no {_ACTOR}.use_kl_loss & "
            "no algorithm.use_kl_in_reward=true",
            "{0.path} {0.value} has no effect",
            "without effect",
            "use_kl_loss is false by default, and there is no reference model",
            "write actor.use_kl_loss: true, or remove kl_loss_coef",
        ),
        Row(
            f"verl:{_ACTOR}.kl_loss_coef>0 & {_ACTOR}.use_kl_loss=false & "
            "no algorithm.use_kl_in_reward=true",
            "{0.path} {0.value} has no effect",
            "without effect",
            "the loss by KL is turned off beside it",
            "remove it",
            severity="note",
        ),
        Row(
            f"verl:{_ACTOR}.fsdp_config.offload_policy=true & "
            f"{_ACTOR}.fsdp_config.param_offload|{_ACTOR}.fsdp_config.optimizer_offload=true & "
            f"{_ACTOR}.strategy=fsdp2",
            "{1.key} has no effect beside {0.key}",
            "in force",
            "with it all states are on the host already",
            "remove one of them",
        ),
        Row(
            f"verl:{_ACTOR}.fsdp_config.offload_policy=true & no {_ACTOR}.strategy=fsdp2",
            "{0.path} {0.value} has no effect",
            "without effect",
            "only FSDP 2 has such a policy, and the strategy is fsdp by default",
            "write actor.strategy: fsdp2, or fsdp_config.param_offload and optimizer_offload",
        ),
        *_OF_CRITICS,
    ),
)
