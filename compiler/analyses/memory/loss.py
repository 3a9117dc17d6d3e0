"""From hidden states to the loss: the logits, whole or in pieces, in bytes per token."""

from typing import Final

from msgspec import Struct
from packaging.version import Version

from tunec.compiler.analyses.memory.modules import BART
from tunec.compiler.analyses.memory.text import text_tokens
from tunec.compiler.analyses.memory.workload import Workload

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


class LossBytes(Struct, frozen=True):
    """The memory of the loss; `fixed` fields are in bytes, the others in bytes per token."""

    forward: float
    backward: float
    kept: float
    """Kept from the forward pass to the backward pass."""
    fixed: float = 0
    """While the loss is computed, whatever the number of tokens."""
    fixed_backward: float = 0
    """While the loss is differentiated, whatever the number of tokens."""


ON_HOST: Final = LossBytes(0, 0, 0)
"""The device memory of a loss that is computed on the host."""


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
    """Whether this release of TRL uses tiles of tokens and vocabulary; None: the newest."""
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


_PADDED_LABELS: Final = Version("4.49")
_SINCE: Final[dict[Version, frozenset[str]]] = {
    Version("4.46"): frozenset(
        {"llama", "gemma", "gemma2", "cohere", "glm", "mixtral", "mllama"}
        | {"olmo", "olmoe", "phi", "phi3", "qwen2", "qwen2_moe"}
    ),
    Version("4.47"): frozenset({"olmo2", "starcoder2"}),
    Version("4.48"): frozenset(
        {"mistral", "granite", "granitemoe", "bloom", "falcon", "gpt2", "gpt_bigcode"}
        | {"gpt_neo", "gptj", "codegen", "mpt", "opt", "stablelm"}
    ),
    Version("4.49"): frozenset({"gpt_neox"}),
    Version("4.52"): frozenset({"llava", "llava_next", "qwen2_vl", "qwen2_5_vl"}),
    Version("5.0"): frozenset({"gemma3"}),
}
"""Since when a family calls the shared `loss_function` instead of a loss of its own; families not
listed always did. Read in the wheels 4.40.2, 4.44.2, 4.45.2, 4.46.3, 4.47.1, 4.48.3, 4.49.0,
4.50.3, 4.51.3, 4.52.4, 4.53.3, 4.57.1 and 5.23.0 (`models/<family>/modeling_<family>.py`); gemma3
changed somewhere between the last two."""

_ALWAYS_OWN: Final = frozenset({"chatglm", "VisualGLMModel"})
"""Families whose own code (`trust_remote_code`) has a loss of its own, in fp32."""

_UNSHIFTED: Final = frozenset(
    BART
    | {"t5", "mt5", "umt5"}
    | {"albert", "bert", "camembert", "convbert", "deberta", "deberta-v2", "distilbert", "electra"}
    | {"ernie", "ibert", "jina_embeddings_v3", "layoutlm", "megatron-bert", "mobilebert", "mpnet"}
    | {"mra", "nomic_bert", "rembert", "roberta", "roberta-prelayernorm", "roformer", "tapas"}
    | {"xlm-roberta", "xlm-roberta-xl"}
)
"""Families whose labels are not shifted: a cross entropy of the logits as they come (transformers
5.23, `T5ForConditionalGeneration.forward`, `BertForMaskedLM.forward` and their like). Newer cards
say so themselves (`plain_loss`)."""

_SIXTEEN_BIT: Final = frozenset(
    {"bloom", "falcon", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj", "codegen"}
    | {"mpt", "opt", "stablelm", "llava", "llava_next"}
)
"""Families whose own loss, before that, does not convert the logits to fp32."""


def judged_tokens(workload: Workload) -> int:
    """Tokens of one sequence that the loss covers: all, or those of a generated answer.

    A label for the whole sequence counts as one token.
    """
    if workload.architecture.kind == "sequence-classifier":
        return 1
    asked = workload.preference
    return asked.scored if asked is not None and asked.scored else text_tokens(workload)


def loss_bytes(
    workload: Workload,
    logits: int,
    *,
    head_trained: bool,
    autocast: bool,
    casts: bool = False,
    short: bool = False,
) -> LossBytes:
    """Bytes that the loss of a language model takes.

    `logits`: bytes an element as the head gives them; `casts` and `short`: see `chunked`. Backward:
    the log-softmax and two gradients of its dtype (traced: 12 bytes an element in fp32).
    """
    model = workload.architecture
    if workload.vocabulary_ways > 1:
        return _across_ranks(logits, model.vocab, copied=workload.copies_logits)
    if workload.loss == "fused":
        liger = workload.version("liger-kernel")
        return fused(model.hidden, model.vocab, liger, head_trained=head_trained)
    if workload.loss == "chunked":
        trl = workload.version("trl")
        how = {"head_trained": head_trained, "casts": casts, "short": short}
        return chunked(model.hidden, model.vocab, trl, width=logits, **how)
    if workload.preference is not None and workload.preference.scored:
        trl = workload.version("trl")
        return scored(logits, model.vocab, trl, workload.preference.scored, autocast=autocast)
    version = workload.version("transformers")
    plain = model.plain_loss or model.family in _UNSHIFTED
    own = plain or has_own_loss(model.family, version)
    narrow = plain or model.family in _SIXTEEN_BIT
    wide = not (own and narrow) or autocast
    cap = logits if model.logit_softcap else 0
    forward = (
        _own_forward(logits, plain=plain, narrow=narrow, autocast=autocast)
        if own
        else _shared_forward(logits, version)
    )
    backward = 3 * (_FP32 if wide else logits)
    return LossBytes((forward + cap) * model.vocab, (backward + cap) * model.vocab, 0)


def _across_ranks(logits: int, vocab: int, *, copied: bool) -> LossBytes:
    """The loss over logits that stay split by the vocabulary, of which a rank has `vocab` columns.

    deepspeed 0.19.8 `sequence/cross_entropy.py`, `VocabParallelCausalLMLoss` and
    `_VocabParallelCrossEntropy`: the logits with a shifted copy, that in fp32, less the largest,
    and the exponentials, which are kept; then two gradients and the exponentials.
    """
    forward = (1 + copied) * logits + 3 * _FP32
    return LossBytes(forward * vocab, (2 * _FP32 + logits) * vocab, 0)


def has_own_loss(family: str, version: Version | None) -> bool:
    """Whether a family computes its own loss in a release of transformers; None: the newest."""
    if family in _ALWAYS_OWN:
        return True
    if version is None:
        return False
    return any(version < since and family in named for since, named in _SINCE.items())


def _own_forward(logits: int, *, plain: bool, narrow: bool, autocast: bool) -> int:
    """Bytes an element where the model computes its loss.

    Its name for the logits is bound to their fp32 copy; then come the shifted copy and the
    log-softmax: 4 + 4 + 4. Without the conversion all three have the logits' dtype; under autocast
    the cross entropy converts the shifted copy.
    """
    if not narrow:
        return 3 * _FP32
    if plain:
        return logits + (2 * _FP32 if autocast and logits < _FP32 else logits)
    return 2 * logits + (2 * _FP32 if autocast else logits)


def _shared_forward(logits: int, version: Version | None) -> int:
    """Bytes an element in transformers' `loss/loss_utils.py`, `ForCausalLMLoss`.

    The caller still holds the 16-bit logits beside their fp32 copy and the log-softmax; until 4.49
    a shifted copy of them, since then labels are padded instead: 2 + 4 + 4 + 4 or 2 + 4 + 4.
    """
    upcast = 0 if logits == _FP32 else _FP32
    shifted = _FP32 if version is not None and version < _PADDED_LABELS else 0
    return logits + upcast + shifted + _FP32
