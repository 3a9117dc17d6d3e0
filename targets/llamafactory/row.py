"""What plans the rows of LLaMA-Factory's files ask for, and where these files lie."""

from typing import Final

from tunec.compiler.ir.plan import Plan

FOLDER: Final = "llamafactory"
"""The folder of the target's files, as the program sees it from the root of a bundle."""


def is_supervised(plan: Plan) -> bool:
    """Whether the model is trained towards given texts."""
    return plan.objective.kind == "sft"


def has_images(plan: Plan) -> bool:
    """Whether samples hold images."""
    return plan.data.images > 0


def is_packed_base(plan: Plan) -> bool:
    """Whether the base is stored in 4 bits."""
    return plan.quantization.format in ("nf4", "fp4")
