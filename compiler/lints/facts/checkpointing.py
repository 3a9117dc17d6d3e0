"""Whether activations are recomputed, and by which variant of torch's checkpoint."""

from typing import Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import keys

RECOMPUTED: Final = (
    *keys("trainer|axolotl|minicpm-v|simpletuner", "gradient_checkpointing"),
    *keys("trainer|axolotl", "activation_checkpointing", "gradient_checkpointing_kwargs"),
    *keys("trainer|axolotl", "fsdp_config", "use_reentrant_gc"),
    *("accelerate:fsdp_config", "llamafactory:disable_gradient_checkpointing"),
    *("glm4:training_args", "sat:checkpoint_activations", "llama-cookbook:enable_fsdp"),
)
"""What rules read that ask for recomputation, where a file turns it on or names its variant."""
_REENTRANT = ("gradient_checkpointing_kwargs.use_reentrant", "use_reentrant_gc")


def recomputes(run: LintContext) -> bool:
    """Whether the run recomputes its activations."""
    return bool(run.value("activation_checkpointing.mode") == "layer")


def reentrant(run: LintContext) -> bool | None:
    """Whether by the reentrant variant: written, or the default of the release; None: unknown."""
    value = run.value("activation_checkpointing.reentrant")
    return value if isinstance(value, bool) else None


def reentrant_place(run: LintContext) -> Place | None:
    """Where a file names the variant, or else turns recomputation on."""
    for kind in ("trainer", "axolotl"):
        found = run.said(kind, *_REENTRANT)
        if found is not None:
            return found
    return checkpointing_place(run)


def checkpointing_place(run: LintContext) -> Place | None:
    """Where a file turns recomputation on."""
    return run.place(run.observed("activation_checkpointing.mode"))
