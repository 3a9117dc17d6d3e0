"""The plans to which the rows of Unsloth's file apply."""

from typing import Final

CONFIG: Final = "unsloth 2026.3.18 to 2026.10.9 unsloth_cli/config.py"
TRAIN: Final = "unsloth 2026.9.8 to 2026.10.9 unsloth_cli/commands/train.py `train`"
TRAINER: Final = "unsloth 2026.9.8 to 2026.10.9 studio/backend/core/training/trainer.py"
