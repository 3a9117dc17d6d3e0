"""Effects of Unsloth on memory that the account does not model."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.ir.plan import Plan
from tunec.targets.rows import has_adapter

_LOSS: Final = (
    "it computes the loss in pieces, by the memory that is free; the account holds all logits at "
    "once (unsloth_zoo 2026.10.9 fused_losses/cross_entropy_loss.py `unsloth_fused_ce_loss`)"
)
_KERNELS: Final = (
    "its kernels for norms, positions, feed-forward and adapters are not followed (unsloth "
    "2026.9.8 to 2026.10.9 kernels)"
)
_BUFFERS: Final = (
    "beside what waits on the host, the last layer's input and one or two buffers of that size "
    "stay on the device (unsloth_zoo 2026.10.9 gradient_checkpointing.py "
    "`UnslothCheckpointFunction`)"
)
_NORMS: Final = (
    "norms are trained in fp32, the rest in bf16 (unsloth_zoo 2026.9.7 to 2026.10.9 "
    "training_utils.py `prepare_model_for_training`)"
)


def unfollowed(plan: Plan) -> Iterator[Diagnostic]:
    """Notes that the account describes the Trainer, without Unsloth's replacements of its parts."""
    on_host = plan.activation_checkpointing.offload
    in_bf16 = not has_adapter(plan) and plan.states.trainable == "bf16"
    yield Diagnostic(
        "account-of-the-plain-trainer",
        "note",
        "the memory is counted for transformers' Trainer without what unsloth puts in its place",
        notes=(
            _LOSS,
            _KERNELS,
            *((_BUFFERS,) if on_host else ()),
            *((_NORMS,) if in_bf16 else ()),
        ),
    )
