"""Flags of `swift rlhf --rlhf_type grpo` that are refused together, and 16-bit dtypes."""

from typing import Final

from tunec.compiler.diagnostics.diagnostic import Severity
from tunec.compiler.lints.rows import Form, Row, rows
from tunec.schemas.frozen import replace

_IS: Final = "rlhf_type=grpo"
_LIGER: Final = "Liger's loss over answers does not compute it"


_pair: Final = Form("ms-swift", "{0.key} {0.value} cannot be combined with {1.key} {1.value}")


def _beside_liger(key: str, test: str) -> Row:
    mend = f"remove {key}, or use_liger_kernel"
    return _pair(key + test, f"use_liger_kernel=true & {_IS}", _LIGER, mend)


_OF_REWARDS: Final = (
    Row(
        "ms-swift:reward_funcs~soft_overlong & no soft_cache_length",
        "soft_overlong requires soft_cache_length",
        "has no bound",
        "the reward falls as answers near their longest length",
        "also write soft_cache_length",
        beside=("rlhf_type=grpo",),
    ),
    Row(
        "ms-swift:num_generations=1 & no teacher_model & no teacher_model_server",
        "a single answer to a prompt has nothing to compare with",
        "refused",
        help="write num_generations: 8",
        beside=("rlhf_type=grpo",),
    ),
)
_RLSD: Final = "advantage_reweight=rlsd"
_IN_GRPO: Final = f"{_RLSD} & {_IS}"
_SDAR: Final = f"sdar_loss_coef>0 & {_IS}"
_TEACHER: Final = "teacher_model_server"
_TEACHERS: Final = ("teacher_model", _TEACHER)
_OF_TEACHERS: Final = (
    *(
        _pair(key, _IN_GRPO, "the teacher weighs single tokens", f"remove {key}")
        for key in ("off_policy_sequence_mask_delta", _TEACHER)
    ),
    _pair(
        "loss_type=real|fipo",
        _IN_GRPO,
        "the loss has one weight a sequence, and a teacher weighs tokens",
        "write loss_type: grpo",
    ),
    _pair("use_liger_kernel=true", _IN_GRPO, _LIGER, "remove use_liger_kernel"),
    Row(
        f"ms-swift:{_RLSD} & no reward_funcs",
        "advantage_reweight rlsd requires reward_funcs",
        "refused",
        "it depends on the sign of the advantage",
        "also write reward_funcs",
        beside=(_IS,),
        since="ms-swift>=4.5",
    ),
    _pair("use_liger_kernel=true", _SDAR, _LIGER, "remove use_liger_kernel"),
    _pair(
        _TEACHER,
        _SDAR,
        "the teacher is a local model, or the policy itself",
        "name it under teacher_model",
    ),
    *(
        Row(
            f"ms-swift:{number} & ({within})",
            "{0.key} {0.value} is refused",
            "out of its bounds",
            help=f"write {usual}, the default",
            beside=(_IS,),
            since="ms-swift>=4.5",
        )
        for number, within, usual in (
            ("rlsd_lambda<0", _RLSD, 0.5),
            ("rlsd_lambda>1", _RLSD, 0.5),
            ("rlsd_reweight_clip_range<0", _RLSD, 0.2),
            ("sdar_gate_beta<=0", "sdar_loss_coef>0", 5.0),
        )
    ),
    *(
        Row(
            f"ms-swift:{when} & {given}",
            f"{{0.key}} {{0.value}} cannot be combined with {given}",
            "refused",
            "a teacher weighs tokens, and this takes one weight a sequence",
            "remove {0.key}, or the teacher",
            beside=(_IS,),
            since="ms-swift>=4.4",
        )
        for given in _TEACHERS
        for when in ("loss_type=real|fipo", "off_policy_sequence_mask_delta?")
    ),
    *(
        Row(
            f"ms-swift:{when} & {given} & no reward_funcs",
            "{0.key} requires reward_funcs",
            "refused",
            "a teacher alone gives all answers to a prompt the same reward",
            "also write reward_funcs, or remove {0.key}",
            beside=(_IS,),
            since="ms-swift>=4.4",
        )
        for given in _TEACHERS
        for when in ("dynamic_sample=true", "scale_rewards=gdpo")
    ),
    *(
        Row(
            f"ms-swift:use_liger_kernel=true & {given}",
            f"use_liger_kernel cannot be combined with {given}",
            "refused",
            _LIGER,
            "remove use_liger_kernel",
            beside=(_IS,),
            since="ms-swift>=4.4",
        )
        for given in _TEACHERS
    ),
    Row(
        "ms-swift:use_liger_kernel=true & no teacher_model & no teacher_model_server",
        "use_liger_kernel is refused if the policy is its own teacher",
        "refused",
        "without a teacher_model the policy itself is the teacher",
        "write teacher_model, or remove use_liger_kernel",
        beside=("rlhf_type=gkd",),
        since="ms-swift>=4.1",
    ),
    _pair(
        _TEACHER,
        "teacher_model",
        "only one teacher is possible",
        "remove one of the two",
        since="ms-swift>=4.4",
    ),
    _pair(
        "async_generate=true",
        "rlhf_type=gkd",
        "its answers must come from the current policy",
        "remove async_generate",
    ),
    _pair("sdar_loss_coef>0", _IN_GRPO, "a teacher is used in one of two ways", "remove one"),
    Row(
        f"ms-swift:{_TEACHER} & no gkd_logits_topk",
        "teacher_model_server requires gkd_logits_topk",
        "refused",
        "a server only returns the most probable tokens",
        "also write gkd_logits_topk",
        beside=("rlhf_type=gkd",),
    ),
    Row(
        "ms-swift:gkd_logits_topk<=0",
        "gkd_logits_topk {0.value} is refused",
        "must be above 0",
        help="write gkd_logits_topk: 64",
        beside=("rlhf_type=gkd",),
    ),
    _pair(
        "gkd_logits_topk>0",
        "use_liger_kernel=true & rlhf_type=gkd",
        "Liger's loss takes all logits",
        "remove one of the two",
    ),
    _pair(
        "seq_kd=true",
        "rlhf_type=gkd",
        "it is not implemented",
        "remove seq_kd",
        since="ms-swift>=4.4",
    ),
)

_PLACED: Final = "ms-swift>=3.12"
"""ms-swift 3.12.0 llm/argument/rlhf_args.py: vllm_mode is required when use_vllm is true;
3.5.0 to 3.11.0 trainers/arguments.py: colocate by default."""
_OF_3: Final[tuple[tuple[str, Severity | None], ...]] = (
    ("no train_type", None),
    ("(train_type)", "note"),
)
"""ms-swift 3's word for tuner_type, which 4.0.0 arguments/base_args/base_args.py still takes: flags
that have it were written for a release that may not have asked."""
_PLACES: Final = (
    Row(
        "ms-swift:vllm_mode=colocate|server & no use_vllm=true",
        "vllm_mode {0.value} requires use_vllm",
        "refused",
        "transformers' own loop generates the answers",
        "also write use_vllm: true",
        since=_PLACED,
    ),
    Row(
        "ms-swift:use_vllm=true & no vllm_mode & rlhf_type=grpo|gkd",
        "use_vllm requires vllm_mode",
        "refused",
        "the place of vLLM is not set",
        "also write vllm_mode: colocate, or server",
        since=_PLACED,
    ),
)

GENERATION_REFUSED: Final = rows(
    "generation-refused",
    "error",
    "parse",
    consumers=("ms-swift>=4",),
    rows=(
        *(
            replace(row, beside=(*row.beside, word), severity=level)
            for row in _PLACES
            for word, level in _OF_3
        ),
        Row(
            "ms-swift:vllm_mode=server & use_vllm=true & no vllm_server_host|vllm_server_base_url",
            "vllm_mode server requires a server",
            "refused",
            "no address of the server is given",
            "also write vllm_server_host, with vllm_server_port",
        ),
        Row(
            "ms-swift:async_generate=true & no vllm_mode=server",
            "async_generate requires vllm_mode server",
            "refused",
            "only a server generates answers during training",
            "write vllm_mode: server, or remove async_generate",
        ),
        _pair(
            "async_generate=true",
            "multi_turn_scheduler",
            "turns of a dialogue depend on each other",
            "remove one of the two",
        ),
        Row(
            "ms-swift:advantage_estimator!=grpo|rloo|reinforce_plus_plus & rlhf_type=grpo",
            "advantage_estimator {0.value} is refused",
            "not taken",
            help="write grpo, rloo or reinforce_plus_plus",
        ),
        _beside_liger("delta", "?"),
        _beside_liger("sequence_parallel_size", ">1"),
        _beside_liger("padding_free", "=true"),
        _beside_liger("top_entropy_quantile", "<1"),
        _beside_liger("log_entropy", "=true"),
        _beside_liger("off_policy_sequence_mask_delta", "?"),
        _beside_liger("advantage_estimator", "=rloo|reinforce_plus_plus"),
        _beside_liger("importance_sampling_level", "=sequence_token"),
        *_OF_REWARDS,
        *_OF_TEACHERS,
    ),
)

TWO_DTYPES_AT_ONCE: Final = rows(
    "two-dtypes-at-once",
    "error",
    "init",
    consumers=("ms-swift",),
    rows=(
        _pair(
            "fp16=true",
            "bf16=true",
            "training runs in one of them; if neither is set, torch_dtype decides",
            "remove one of the two",
        ),
    ),
)
