"""What plans the rows of Unsloth's file ask for."""

from typing import Final

from tunec.compiler.ir.plan import Plan
from tunec.targets.rows import has_images

CONFIG: Final = "unsloth 2026.3.18 to 2026.10.9 unsloth_cli/config.py"
TRAIN: Final = "unsloth 2026.9.8 to 2026.10.9 unsloth_cli/commands/train.py `train`"
TRAINER: Final = "unsloth 2026.9.8 to 2026.10.9 studio/backend/core/training/trainer.py"


def has_text_alone(plan: Plan) -> bool:
    """Whether samples are texts."""
    return not has_images(plan)
