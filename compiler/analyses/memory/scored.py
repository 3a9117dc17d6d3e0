"""Log-probabilities of all logits at once, as GRPO computed them before it took tiles."""

from typing import Final

from packaging.version import Version

from tunec.compiler.analyses.memory.projection import LossBytes

_FP32: Final = 4
_ENTROPY_ROWS: Final = 128
"""Rows whose entropies are computed at once (trl 0.27.2 to 1.13.0 `trainer/utils.py`,
`entropy_from_logits`)."""
_ENTROPY_TENSORS: Final = 3
"""Of them: logarithms, probabilities and their product."""

_DIVIDES_IN_PLACE: Final = Version("1.0")
_DIVIDES_A_COPY: Final = Version("1.10")
_ONE_KERNEL: Final = Version("1.14")
"""How logits are divided by the temperature (trl `trainer/grpo_trainer.py`,
`_get_per_token_logps_and_entropies`): 0.27.2 to 0.29.1 and 1.10.0 to 1.13.0 into a copy, 1.0.0 to
1.9.2 in place, 1.14.2 in one Triton kernel with all the rest (`kernels/logprob_entropy.py`)."""


def scored(
    logits: int, vocab: int, version: Version | None, tokens: int, *, autocast: bool
) -> LossBytes:
    """Bytes of the log-probabilities of an answer of so many tokens; only its logits are made.

    `logits`: bytes an element; accelerate makes fp32 of what autocast gives. In 16 bit
    log-softmaxes of each sequence are kept, in fp32 logarithms of sums alone; dividing in place
    keeps what is divided, and flattening it for the entropies copies. Each was traced with the
    functions of 0.27.2, 1.3.0, 1.9.2 and 1.13.0, 1.14.2 by its source.
    """
    wide = autocast or logits == _FP32
    size = _FP32 if wide else logits
    if version is None or version >= _ONE_KERNEL:
        given = logits + size if wide and logits < size else size
        return LossBytes(given * vocab, 2 * size * vocab, 0)
    in_place = _DIVIDES_IN_PLACE <= version < _DIVIDES_A_COPY
    at_once = (3 if in_place and not wide else 2) * size
    back = (4 if in_place or wide else 2) * size
    row = 0.0 if back > 2 * size else float(size * vocab * tokens)
    chunk = float(_ENTROPY_TENSORS * size * _ENTROPY_ROWS * vocab)
    return LossBytes(at_once * vocab, back * vocab, 0, fixed=chunk, fixed_backward=row)
