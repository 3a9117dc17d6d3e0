"""Flags of `swift rlhf --rlhf_type grpo` that are refused together, and 16-bit dtypes."""

from typing import Final

from tunec.compiler.lints.rows import Row, rows

_LIGER: Final = "Liger's loss over answers computes none of that"


def _pair(when: str, beside: str, why: str, help: str, *others: str) -> Row:
    """A key that is refused beside another one."""
    return Row(
        f"ms-swift:{when}",
        "{0.key} {0.value} is refused beside {1.key} {1.value}",
        "refused",
        why,
        help,
        beside=(beside, *others),
    )


def _beside_liger(key: str, test: str) -> Row:
    mend = f"remove {key}, or use_liger_kernel"
    return _pair(key + test, "use_liger_kernel=true", _LIGER, mend, "rlhf_type=grpo")


GENERATION_REFUSED: Final = rows(
    "generation-refused",
    "error",
    "parse",
    consumers=("ms-swift>=4",),
    rows=(
        Row(
            "ms-swift:vllm_mode=colocate|server & no use_vllm=true",
            "vllm_mode {0.value} is refused without use_vllm",
            "refused",
            "transformers' own loop writes the answers",
            "also write use_vllm: true",
        ),
        Row(
            "ms-swift:use_vllm=true & no vllm_mode & rlhf_type=grpo|gkd",
            "use_vllm is refused without vllm_mode",
            "refused",
            "nothing says where vLLM runs",
            "also write vllm_mode: colocate, or server",
        ),
        Row(
            "ms-swift:vllm_mode=server & use_vllm=true & no vllm_server_host|vllm_server_base_url",
            "vllm_mode server is refused without a server",
            "refused",
            "nothing says where the server is",
            "also write vllm_server_host, with vllm_server_port",
        ),
        Row(
            "ms-swift:async_generate=true & no vllm_mode=server",
            "async_generate is refused without vllm_mode server",
            "refused",
            "only a server writes answers while others are trained on",
            "write vllm_mode: server, or remove async_generate",
        ),
        _pair(
            "async_generate=true",
            "multi_turn_scheduler",
            "several turns wait for each other",
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
            "training runs in one of them; absent, both follow torch_dtype",
            "remove one of the two",
        ),
    ),
)
