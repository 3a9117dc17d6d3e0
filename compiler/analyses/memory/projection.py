"""Losses that never hold all logits: the head's product taken in pieces, in bytes a token."""

from typing import Final

from packaging.version import Version

from tunec.schemas.frozen import dataclass

_HALF: Final = 2
_FP32: Final = 4

_LIGER_NARROW: Final = Version("0.5")
"""Liger made its logits fp32 until 0.4.2; 0.5.10 and later read them in 16 bit (`ops/
fused_linear_cross_entropy.py` in the wheels 0.2.1, 0.4.2, 0.5.10, 0.6.4 and 0.8.0)."""
_LIGER_ADDS: Final = Version("0.6")
"""Until 0.5.10 a chunk's weight gradient is added in place (`addmm`); 0.6.4 adds an fp32 copy."""

_CHUNK: Final = 256
"""Tokens that TRL 1.4 to 1.14 projects at once (`trainer/sft_trainer.py`,
`_CHUNKED_LM_HEAD_CHUNK_SIZE`)."""
_TRL_NARROW: Final = Version("1.13")
"""TRL 1.4 to 1.11 project in fp32, with an fp32 copy of the head; 1.13 in the model's dtype."""
_TRL_TILED: Final = Version("1.15")
"""Since then it takes tiles of tokens and vocabulary (`kernels/chunked_logprob.py`)."""
TILE_ROWS: Final = 4096
TILE_WIDTH: Final = 32768
"""That tile (`TOKEN_CHUNK_SIZE`; `trainer/utils.py`, `_CHUNKED_LOGPROB_CHUNK_SIZE`)."""
_STATISTICS: Final = 44
"""Bytes a token of running maxima and sums, seven of fp32, four more made of them at the end."""
_KEPT_STATISTICS: Final = 16
"""Of these the backward pass reads the target and the logarithm, besides what the loss is of."""


@dataclass(frozen=True, slots=True)
class LossBytes:
    """What the loss holds; the `fixed` ones in bytes, the others in bytes a token."""

    forward: float
    backward: float
    kept: float
    """From the forward pass to the backward pass."""
    fixed: float = 0
    """While the loss is computed, whatever the number of tokens."""
    fixed_backward: float = 0
    """While the loss is differentiated, whatever the number of tokens."""


def fused(hidden: int, vocab: int, version: Version | None, *, head_trained: bool) -> LossBytes:
    """Liger's fused linear cross entropy (arXiv 2410.10989, section 3.2).

    It keeps the gradient of the hidden states and, trained, that of the projection, and works in
    chunks of next_power_of_2(tokens / ceil(vocab / hidden)) rows: at most two elements of logits
    for each hidden unit of each token.
    """
    wide = version is not None and version < _LIGER_NARROW
    copied = version is None or version >= _LIGER_ADDS
    logits = 2 * (_HALF + _FP32 if wide else _HALF)
    weight = _HALF * vocab * hidden if head_trained else 0
    added = (_HALF + _FP32) * vocab * hidden if head_trained and copied else 0
    return LossBytes(
        (_HALF + logits) * hidden,
        _HALF * hidden,
        _HALF * hidden,
        fixed=weight + added,
        fixed_backward=weight,
    )


def chunked(
    hidden: int,
    vocab: int,
    version: Version | None,
    *,
    width: int = _HALF,
    head_trained: bool,
    casts: bool,
    short: bool,
) -> LossBytes:
    """TRL's loss over pieces of the logits, its default for supervised fine-tuning since 1.8.

    Each generation was traced. All keep a copy of the tokens that count, and while they are
    differentiated its gradient. `width`: bytes of an element in products; `casts`: whether autocast
    reads an fp32 head; `short`: whether a micro batch has fewer tokens than a tile has rows.
    """
    if version is None or is_tiled(version):
        how = {"head_trained": head_trained, "casts": casts, "short": short}
        return _tiled(hidden, vocab, width, **how)
    rows = _CHUNK * vocab
    if version >= _TRL_NARROW:
        forward, frozen = 16 * rows, 16 * rows
        trained = max(16 * rows + _HALF * vocab * hidden, 6 * vocab * hidden)
    else:
        head = vocab * hidden
        copy = _FP32 * head
        forward = max(16 * rows, copy + _FP32 * _CHUNK * (vocab + hidden))
        frozen = copy + 12 * rows
        trained = max(10 * head + 4 * rows + 8 * _CHUNK * hidden, 6 * head + 12 * rows)
    return LossBytes(
        _HALF * hidden,
        2 * _HALF * hidden,
        _HALF * hidden,
        fixed=forward,
        fixed_backward=trained if head_trained else frozen,
    )


def is_tiled(version: Version | None) -> bool:
    """Whether this release of TRL takes tiles of tokens and vocabulary; none: the newest."""
    return version is None or version >= _TRL_TILED


def _tiled(
    hidden: int, vocab: int, width: int, *, head_trained: bool, casts: bool, short: bool
) -> LossBytes:
    """One tile of logits; gradients are summed in fp32, and copied at the end to another dtype.

    The tile has as many rows as there are tokens, up to its own number; an fp32 head is cast in
    slices, of which the backward pass holds two.
    """
    copied = width if width < _FP32 else 0
    weight = (_FP32 + (0 if casts else copied)) * vocab * hidden if head_trained else 0
    slice_, slices = (width * casts * min(vocab, n * TILE_WIDTH) * hidden for n in (1, 2))
    row, tile = width * TILE_WIDTH * short, 0 if short else width * TILE_ROWS * TILE_WIDTH
    return LossBytes(
        width * hidden + _STATISTICS + row,
        (width + copied + _FP32) * hidden + _KEPT_STATISTICS + _FP32 + row,
        width * hidden,
        fixed=tile + slice_,
        fixed_backward=tile + slices + weight,
    )
