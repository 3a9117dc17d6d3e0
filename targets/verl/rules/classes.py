"""Values that the classes of verl's sections refuse when they are instantiated."""

from typing import Final

from tunec.compiler.lints.rows import Row

_ACTOR: Final = "actor_rollout_ref.actor"
_ROLLOUT: Final = "actor_rollout_ref.rollout"
_REFUSED: Final = "verl refuses {0.path} {0.value}"
_HOLDERS: Final = (_ACTOR, "actor_rollout_ref.ref", "critic")


def _in_each(engine: str, key: str) -> str:
    """A key of an engine's section, for each model of a run with rewards."""
    return "|".join(f"{holder}.{engine}.{key}" for holder in _HOLDERS)


def _in_any(engine: str, key: str) -> str:
    """A key of an engine's section, for a run with rewards or an SFT run."""
    return f"engine.{key}|{_in_each(engine, key)}"


def _of_rates(key: str) -> str:
    """A key of an optimizer's section."""
    return f"optim.{key}|{_ACTOR}.optim.{key}|critic.optim.{key}"


def _words(keys: str, words: str, *, beside: str = "", why: str = "", since: str = "") -> Row:
    """A key whose value is not one of the accepted words."""
    listed = words.split("|")
    named = f"{', '.join(listed[:-1])} or {listed[-1]}" if listed[1:] else listed[0]
    also = f" & {beside}" if beside else ""
    return Row(
        f"verl:{keys}!={words}{also}", _REFUSED, "not taken", why, f"write {named}", since=since
    )


def _number(keys: str, test: str, help: str, *, beside: str = "", why: str = "") -> Row:
    also = f" & {beside}" if beside else ""
    return Row(f"verl:{keys}{test}{also}", _REFUSED, "not taken", why, help)


_TORCHS: Final = (
    "ASGD|Adadelta|Adafactor|Adagrad|Adam|AdamW|Adamax|LBFGS|Muon|NAdam|RAdam|RMSprop|Rprop|SGD|"
    "SparseAdam"
)
"""torch 2.9.1 to 2.13.0 optim/__init__.py."""
_DTYPES: Final = "fp32|float32|32|bf16|bfloat16"

OF_ENGINES: Final = (
    _words(_in_each("megatron", "dtype"), "bfloat16|float16"),
    _words("engine.dtype", "bfloat16|float16", beside="(engine.strategy=megatron)"),
    _words(_in_each("megatron", "strategy"), "megatron"),
    _words(_in_each("veomni", "strategy"), "veomni"),
    _words(_in_each("torchtitan", "strategy"), "torchtitan"),
    _words(
        "|".join((f"{_ACTOR}.fsdp_config.strategy", "actor_rollout_ref.ref.fsdp_config.strategy")),
        "fsdp|fsdp2|fsdp_turbo",
    ),
    Row(
        f"verl:{_in_any('megatron', 'dynamic_context_parallel')}=true"
        f" & no {_in_any('megatron', 'max_seqlen_per_dp_cp_rank')}>0",
        "{0.key} requires a number of tokens for each rank",
        "without its bound",
        "each rank takes so many tokens at most",
        "write max_seqlen_per_dp_cp_rank",
    ),
    *(
        _words(f"{holder}.{engine}.router_replay.mode", "disabled|R2|R3")
        for holder in _HOLDERS[:2]
        for engine in ("megatron", "veomni")
    ),
    _words("engine.router_replay.mode", "disabled|R2|R3"),
    Row(
        f"verl:{_ACTOR}.megatron.router_replay.mode=R2"
        " & algorithm.rollout_correction.bypass_mode=true",
        "{0.path} R2 cannot be combined with {1.path}",
        "records nothing",
        "R2 records routes in a pass that bypass_mode leaves out",
        "write R3, or bypass_mode: false",
    ),
    Row(
        f"verl:{_ACTOR}.veomni.router_replay.mode=R2|R3 & no {_ACTOR}.use_remove_padding=true",
        "{0.path} {0.value} is refused while padding stays",
        "refused",
        "use_remove_padding is false by default in this class",
        "write actor.use_remove_padding: true",
    ),
    _number(_in_any("veomni", "activation_offload_host_cache_limit_gb"), "<0", "write 0 or more"),
    _words(_in_any("torchtitan", "attn_type"), "flex|flex_flash|varlen"),
    _words(_in_any("torchtitan", "spmd_backend"), "default|full_dtensor|spmd_types"),
    _words(_in_any("torchtitan", "activation_checkpoint"), "selective|full|none"),
    _words("engine.distributed_strategy", "fsdp2|megatron_fsdp|ddp"),
    _number(
        "engine.pp_size", ">1", "write pp_size: 1", why="this backend has no pipeline parallelism"
    ),
    *(
        _words(_of_rates(name), _DTYPES, since="verl>=0.9")
        for name in ("main_grads_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")
    ),
    Row(
        "verl:model.target_modules|actor_rollout_ref.model.target_modules{}",
        "{0.path} is a block",
        "no names",
        help="write a text, or a list of names",
    ),
    _words(_of_rates("warmup_style"), "constant|cosine"),
    _words("critic.optim.lr_scheduler_type", "constant|cosine"),
    Row(
        f"verl:{_of_rates('optimizer')}!={_TORCHS} & no {_of_rates('optimizer_impl')}?",
        "torch.optim has no {0.value}",
        "not found",
        "optimizer_impl is torch.optim by default",
        "write AdamW, or name the module that has another optimizer in optimizer_impl",
    ),
)
"""verl 0.8.0 to 0.9.1 workers/config/engine.py, actor.py, optimizer.py `__post_init__`."""

_SPLIT: Final = f"{_ROLLOUT}.disaggregation"
_IS_SPLIT: Final = f"{_SPLIT}.enabled=true"

OF_ROLLOUT: Final = (
    _number(
        f"{_ROLLOUT}.pipeline_model_parallel_size",
        ">1",
        "write tensor_model_parallel_size instead",
        beside=f"{_ROLLOUT}.name=vllm|sglang|trtllm",
        why="no engine supports pipeline parallelism",
    ),
    _number(
        f"{_ROLLOUT}.moe_tensor_parallel_size",
        ">1",
        "remove it",
        beside=f"{_ROLLOUT}.name!=trtllm",
        why="only TensorRT-LLM has it",
    ),
    _number(f"{_ROLLOUT}.trace.max_samples_per_step_per_worker", "<0", "write a number, or null"),
    _words(f"{_SPLIT}.transfer_backend", "nixl|mooncake|ascend|mori|fake", beside=_IS_SPLIT),
    _number(f"{_SPLIT}.prefill_replicas", "<1", "write 1 or more", beside=_IS_SPLIT),
    _number(f"{_SPLIT}.decode_replicas", "<1", "write 1 or more", beside=_IS_SPLIT),
    _number(f"{_SPLIT}.bootstrap_port", "<=0", "write a port", beside=_IS_SPLIT),
    _number(f"{_SPLIT}.bootstrap_port", ">=65536", "write a port", beside=_IS_SPLIT),
    _words(
        f"{_SPLIT}.mooncake_protocol",
        "nvlink|local|rdma|tcp",
        beside=f"{_IS_SPLIT} & {_SPLIT}.transfer_backend=mooncake",
    ),
    Row(
        f"verl:{_IS_SPLIT} & {_ROLLOUT}.name!=sglang|vllm",
        "{1.path} {1.value} does not separate prefill and decoding",
        "refused",
        help="write sglang or vllm",
    ),
    Row(
        f"verl:{_SPLIT}=true|false|enabled",
        "{0.path} must be a block",
        "no block",
        help="write disaggregation: {{enabled: true}}",
    ),
    *(
        _number(f"trainer.v1.separate_async.hybrid_rollout.{key}", test, f"write {bound}")
        for key, test, bound in (
            ("switch_threshold_ratio", "<=0", "a share above 0, up to 1"),
            ("switch_threshold_ratio", ">1", "a share above 0, up to 1"),
            ("switch_cost_window_size", "<=0", "1 or more"),
        )
    ),
    Row(
        "verl:critic.ppo_micro_batch_size & no critic.ppo_micro_batch_size_per_gpu=null"
        " & no critic.use_dynamic_bsz=true",
        "{0.key} cannot be combined with ppo_micro_batch_size_per_gpu",
        "given twice",
        "the number for each device is the same by default",
        "write ppo_micro_batch_size_per_gpu instead",
    ),
    Row(
        "verl:algorithm.adv_estimator=gae & actor_rollout_ref.model.path & no "
        "critic.ppo_micro_batch_size_per_gpu|critic.ppo_micro_batch_size"
        f" & no critic.use_dynamic_bsz=true & no {_ACTOR}.use_dynamic_bsz=true",
        "critic.ppo_micro_batch_size_per_gpu is missing",
        "trains a critic",
        "no number of samples for each device is given",
        "write critic.ppo_micro_batch_size_per_gpu",
        severity="warning",
    ),
)
"""verl 0.8.0 to 0.9.1 workers/config/rollout.py, disaggregation.py, critic.py and
trainer/config/config.py `__post_init__`."""

_LOSS: Final = "distillation.distillation_loss"
_TEACHER: Final = "distillation.teacher_models.teacher_model"
_TEACHES: Final = "distillation.enabled=true"

OF_DISTILLATION: Final = (
    _words(f"{_LOSS}.policy_loss_mode", "vanilla", beside=_TEACHES),
    Row(
        f"verl:{_LOSS}.loss_mode=k1 & {_TEACHES} & no {_LOSS}.use_policy_gradient=true",
        "{0.path} k1 requires a policy's gradient",
        "no gradient to the teacher",
        help="write k3, or use_policy_gradient: true",
    ),
    Row(
        f"verl:{_LOSS}.topk=null & {_TEACHES} & {_LOSS}.loss_mode=forward_kl_topk",
        "{0.path} is empty, and the loss compares that many tokens",
        "no number",
        help="write topk: 32",
    ),
    Row(
        f"verl:{_TEACHER}.inference.name!=vllm|sglang & {_TEACHES}"
        f" & {_LOSS}.loss_mode=forward_kl_topk",
        "{0.path} {0.value} returns no log-probabilities of a teacher",
        "not taken",
        help="write vllm or sglang",
    ),
)
"""verl 0.9.0 and 0.9.1 workers/config/distillation.py."""
