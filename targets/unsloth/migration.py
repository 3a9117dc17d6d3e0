"""Unsloth's keys without a slot: what TRL does instead."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.consumers.moved_keys import Carry, Moved, gone, gone_unless, only_here
from tunec.compiler.target import Json
from tunec.targets.answers import answers_by
from tunec.targets.unsloth.packages import CONFIG


def _other(key: str, instead: str, *same: Any) -> Moved:
    """A key whose behaviour TRL replaces by its own; for the values `same` both do the same."""
    return gone_unless(key, CONFIG, instead, *same)


_SAVES: Final = "training.save_steps"


def _never(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """No checkpoint before the end, unless there is a number of steps."""
    return {} if found.get(_SAVES) else {"save_strategy": "no"}


_SAVING: Final = (
    "unsloth 2026.3.18 to 2026.10.9 studio/backend/core/training/training.py `apply_save_strategy`"
)
ANSWERS: Final = answers_by("training.train_on_completions", False, True, CONFIG, usually=False)
CARRIES: Final = (
    Carry((_SAVES,), _never, _SAVING, slots=("schedule.save_steps",)),
    Carry(
        ("model",),
        _never,
        _SAVING,
        beside=(_SAVES,),
        slots=("schedule.save_steps",),
        is_default=True,
    ),
)
_PRESET: Final = "a key of presets of Unsloth's Studio, for its forms: `unsloth train` refuses it"
LEAVES: Final = (
    *(
        only_here(key, CONFIG, _PRESET)
        for key in (
            *("training.optim", "training.lr_scheduler_type", "training.warmup_ratio"),
            *("training.eval_steps", "logging.log_frequency", "inference"),
        )
    ),
    _other("data.format_type", "samples hold `messages`, `prompt` and `completion`, or `text`"),
    _other("lora.use_loftq", "adapters start as PEFT makes them", False),
    _other("lora.vision_all_linear", "the targets say which layers are adapted", False),
    *(
        _other(f"lora.finetune_{part}", "the targets say which layers are adapted", True)
        for part in ("vision_layers", "language_layers", "attention_modules", "mlp_modules")
    ),
    gone("logging.wandb_project", CONFIG, "WANDB_PROJECT names the project"),
    gone("logging.wandb_token", CONFIG, "WANDB_API_KEY holds the key"),
    gone("logging.hf_token", CONFIG, "HF_TOKEN holds the token"),
    gone("logging.tensorboard_dir", CONFIG, "logs lie beside the output"),
)
"""What TRL does without each of these keys."""
