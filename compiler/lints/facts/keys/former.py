"""Keys of classes that TRL's scripts had before the releases whose schemas are known.

By kind of document: the key, and what it is called today (None: it went). Until 0.11 TRL's
PPOConfig was a class of its own beside TrainingArguments (huggingface/trl v0.8.6
trainer/ppo_config.py); until July 2025 the recipes of the alignment handbook were read by
dataclasses of its own (huggingface/alignment-handbook v0.3.0 src/alignment/configs.py; 19f0345
reads them by TRL's).
"""

from collections.abc import Mapping
from typing import Final

from tunec.compiler.lints.document import TRL

PPO: Final[Mapping[str, str | None]] = {
    "ppo_epochs": "num_ppo_epochs",
    "init_kl_coef": "kl_coef",
    "kl_penalty": "kl_estimator",
    "log_with": "report_to",
    "steps": "total_episodes",
    **dict.fromkeys(
        (
            *("adap_kl_ctrl", "horizon", "forward_batch_size", "optimize_cuda_cache"),
            *("optimize_device_cache", "early_stopping", "target_kl", "compare_steps"),
            *("ratio_threshold", "use_score_scaling", "use_score_norm", "score_clip"),
            *("tracker_project_name", "tracker_kwargs", "accelerator_kwargs", "query_dataset"),
        )
    ),
}
HANDBOOK: Final[Mapping[str, str | None]] = {
    "use_flash_attention_2": "attn_implementation",
    "dataset_mixer": "dataset_mixture",
    "preprocessing_num_workers": "dataset_num_proc",
    "auto_insert_empty_system_msg": None,
    "dataset_splits": None,
}
SINCE: Final[Mapping[str, str]] = {
    **dict.fromkeys(PPO, "trl>=0.12"),
    **dict.fromkeys(HANDBOOK, "trl>=0.19"),
}
"""The releases of TRL whose scripts refuse each."""


def former(kind: str, key: str) -> tuple[str, str | None] | None:
    """Since which releases of TRL a key is refused, and its name today; None: it is no such key."""
    if kind == "ppo" and key in PPO:
        return SINCE[key], PPO[key]
    if kind in TRL and key in HANDBOOK:
        return SINCE[key], HANDBOOK[key]
    return None
