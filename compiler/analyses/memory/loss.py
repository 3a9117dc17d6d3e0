"""From hidden states to the loss: the logits, in bytes a token."""

from dataclasses import dataclass
from typing import Final

from packaging.version import Version

from tunec.compiler.analyses.memory.workload import Workload

_FP32: Final = 4
_CHUNK: Final = 256
"""Tokens that TRL's `chunked_nll` projects at once (trl 1.16, `chunked_nll`)."""

_LOSS_MODULE: Final = Version("4.46")
_PADDED_LABELS: Final = Version("4.49")


@dataclass(frozen=True, slots=True)
class LossBytes:
    """What the loss holds; `fixed` in bytes, the others in bytes a token."""

    forward: float
    backward: float
    kept: float
    """While the layers are differentiated."""
    fixed: float = 0


def loss_bytes(workload: Workload, logits: int, *, head_trained: bool) -> LossBytes:
    """Bytes that the loss of a language model takes; `logits` bytes an element as the head gives them.

    Forward, by transformers' own history (`loss/loss_utils.py`, `modeling_llama.py`; read in the
    releases 4.40.2 to 5.23.0): before 4.46 the model rebinds its logits to fp32, then makes the
    shifted copy and the log-softmax, 4 + 4 + 4; from 4.46 the caller still holds the 16-bit logits,
    2 + 4 + 4 + 4; from 4.49 labels are padded instead of logits shifted, 2 + 4 + 4. Backward: the
    log-softmax and two fp32 gradients, 12 (traced).
    """
    model = workload.architecture
    if workload.loss == "fused":
        return _fused(model.hidden, model.vocab, head_trained=head_trained)
    if workload.loss == "chunked":
        return LossBytes(0, 0, 0, fixed=_CHUNK * model.vocab * 3 * _FP32)
    forward = forward_bytes(workload.version("transformers"), logits, capped=model.logit_softcap)
    return LossBytes(forward * model.vocab, 3 * _FP32 * model.vocab, 0)


def forward_bytes(version: Version | None, logits: int, *, capped: bool) -> int:
    """Bytes an element of the logits at the peak of the loss's forward pass."""
    upcast = 0 if logits == _FP32 else _FP32
    cap = logits if capped else 0
    if version is None or version >= _PADDED_LABELS:
        return logits + upcast + _FP32 + cap
    if version >= _LOSS_MODULE:
        return logits + upcast + 2 * _FP32 + cap
    return 3 * _FP32 + cap


def _fused(hidden: int, vocab: int, *, head_trained: bool) -> LossBytes:
    """Liger's fused linear cross entropy (arXiv 2410.10989, section 3.2).

    It keeps the gradient of the hidden states and, trained, that of the projection, and works in
    chunks of next_power_of_2(tokens / ceil(vocab / hidden)) rows of fp32 logits: at most 8 bytes a
    token and hidden unit.
    """
    weight = 2 * 2 * vocab * hidden if head_trained else 0
    return LossBytes(10 * hidden, 2 * hidden, 2 * hidden, fixed=weight)
