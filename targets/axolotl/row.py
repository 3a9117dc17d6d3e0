"""From which release on Axolotl's YAML is written, and what plans its rows ask for."""

from typing import Final

from tunec.compiler.ir.plan import Plan

WRITTEN: Final = "0.13"
"""The first release that files are written for; older ones are read."""


def is_supervised(plan: Plan) -> bool:
    """Whether the model is trained towards given texts."""
    return plan.objective.kind == "sft"


def has_images(plan: Plan) -> bool:
    """Whether samples hold images."""
    return plan.data.images > 0


def is_packed_base(plan: Plan) -> bool:
    """Whether the base is stored in 4 bits."""
    return plan.quantization.format in ("nf4", "fp4")
