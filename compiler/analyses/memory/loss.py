"""From hidden states to the loss: the logits, in bytes a token."""

from typing import Final

from packaging.version import Version

from tunec.compiler.analyses.memory.activations import text_tokens
from tunec.compiler.analyses.memory.projection import LossBytes, chunked, fused
from tunec.compiler.analyses.memory.scored import scored
from tunec.compiler.analyses.memory.workload import Workload

_FP32: Final = 4

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
    {"t5", "mt5", "umt5", "bart", "mbart"} | {"bert", "roberta", "xlm-roberta"}
)
"""Families whose labels are not shifted: a cross entropy of the logits as they come (transformers
5.23, `T5ForConditionalGeneration.forward`, `BertForMaskedLM.forward` and their like)."""

_SIXTEEN_BIT: Final = frozenset(
    {"bloom", "falcon", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj", "codegen"}
    | {"mpt", "opt", "stablelm", "llava", "llava_next"}
    | _UNSHIFTED
)
"""Families whose own loss, before that, does not convert the logits to fp32."""


def judged_tokens(workload: Workload) -> int:
    """Tokens of one sequence that the loss is of: all, or an answer that the model wrote."""
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
    own = has_own_loss(model.family, version)
    wide = not (own and model.family in _SIXTEEN_BIT) or autocast
    cap = logits if model.logit_softcap else 0
    forward = (
        _own_forward(logits, model.family, autocast=autocast)
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
    """Whether a family computes its loss itself in a release of transformers; none: the newest."""
    if family in _ALWAYS_OWN | _UNSHIFTED:
        return True
    if version is None:
        return False
    return any(version < since and family in named for since, named in _SINCE.items())


def _own_forward(logits: int, family: str, *, autocast: bool) -> int:
    """Bytes an element where the model computes its loss.

    Its name for the logits is bound to their fp32 copy; then come the shifted copy and the
    log-softmax: 4 + 4 + 4. Without the conversion all three have the logits' dtype; under autocast
    the cross entropy converts the shifted copy.
    """
    if family not in _SIXTEEN_BIT:
        return 3 * _FP32
    if family in _UNSHIFTED:
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
