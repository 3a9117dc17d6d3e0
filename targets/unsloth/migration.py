"""Unsloth's keys without a slot: what TRL does instead."""

from typing import Any, Final

from tunec.compiler.consumers.moved_keys import Moved, gone, never, one_of
from tunec.targets.answers import answers_by
from tunec.targets.unsloth.row import CONFIG


def _other(key: str, instead: str, *same: Any) -> Moved:
    """A key whose behaviour TRL replaces by its own; for the values `same` both do the same."""
    return gone(key, CONFIG, instead, changes_nothing=one_of(*same) if same else never)


ANSWERS: Final = answers_by("training.train_on_completions", False, True, CONFIG, usually=False)
LEAVES: Final = (
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
