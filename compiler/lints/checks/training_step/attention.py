"""Attention kernels and positions, and samples that do not fit them."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix, Term
from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document, Place, also
from tunec.compiler.lints.facts.precision import computes_in_half, loaded_in
from tunec.compiler.lints.facts.training_loop import flag
from tunec.compiler.lints.kinds import is_fragment
from tunec.compiler.lints.rule import Finding, keys, rule

_KINDS: Final = ("model", *TRL)
_ATTENTION_KEYS: Final = ("attn_implementation", "model_init_kwargs.attn_implementation")
_FLASH: Final = "flash_attention_2"
_FLEX: Final = "flex_attention"
_MEANT: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            *("flash_attention", "flash_attn", "flash-attention", "flash", "flash_attn_2"),
            *("flash_attention2", "flash-attention-2", "flash_attention_v2", "flash2", "fa2"),
            "flashattention2",
        ),
        _FLASH,
    ),
    **dict.fromkeys(("flash_attn_3", "flash_attention3", "fa3"), "flash_attention_3"),
    **dict.fromkeys(("flex", "flex_attn", "flexattention"), "flex_attention"),
    **dict.fromkeys(("sdp", "spda", "torch_sdpa", "sdpa_attention"), "sdpa"),
    **dict.fromkeys(("vanilla", "none", "default"), "eager"),
    "xformers": "sdpa",
    "true": _FLASH,
}
"""Wrong words with the right ones; any other word may be a kernel that a script has registered."""


@rule(
    "error",
    "load",
    consumers=("transformers",),
    reads=keys("|".join((*_KINDS, "hf")), *_ATTENTION_KEYS),
)
def attention_word_unknown(run: LintContext) -> Iterator[Finding]:
    """A word for the attention kernel that transformers does not have."""
    for document in run.of(*_KINDS):
        for key in _ATTENTION_KEYS:
            at = document.get(key)
            meant = _MEANT.get(str(at.value).lower()) if at is not None else None
            if at is not None and meant is not None and at.value is not None:
                yield _finding(at, meant)
    if run.runs("torch<2.5") is True:
        yield from _flex(run)


def _flex(run: LintContext) -> Iterator[Finding]:
    """Report FlexAttention with a torch before 2.5, where it was added."""
    for place in (
        at for kind in (*_KINDS, "hf") for key in _ATTENTION_KEYS for at in run.each(kind, key)
    ):
        if place.value == _FLEX:
            yield Finding(
                f"torch {run.release('torch').version} has no {_FLEX}",
                (place.label("needs torch 2.5"),),
                ("transformers checks the release of torch when the model is loaded",),
                "write sdpa, or use torch 2.5 or later",
                Fix((place.replaced("sdpa"),), "safe"),
            )


def _finding(at: Place, meant: str) -> Finding:
    return Finding(
        f"{at.path} cannot be {at.value}",
        (at.label("not known"),),
        ("known: eager, sdpa, flash_attention_2, flash_attention_3, flex_attention",),
        f"write {meant}",
        Fix((at.replaced(meant),), "unsafe"),
    )


_APART: Final = ("flash", "flex", "xformers", "sage")
_NAMED_BY: Final = ("attn_implementation", "model_init_kwargs.attn_implementation")


@rule(
    "error",
    "silent",
    consumers=("trl", "axolotl"),
    reads=(*keys("sft", "packing", "padding_free"), "axolotl:sample_packing"),
)
def packing_without_varlen(run: LintContext) -> Iterator[Finding]:
    """Samples are packed, but attention does not separate them."""
    for document in run.of("sft"):
        yield from _of_trl(run, document)
    for document in run.of("axolotl"):
        yield from _of_axolotl(run, document)


def _of_trl(run: LintContext, document: Document) -> Iterator[Finding]:
    at = next((p for k in ("packing", "padding_free") if (p := document.get(k)) and _on(p)), None)
    if at is None or document.is_view or run.runs("trl>=1.16") or _joins_on_purpose(run, at):
        return
    attention = _attention(run)
    if attention is None or _keeps_apart(attention.value):
        return
    masked = run.runs("transformers>=4.53")
    yield Finding(
        f"{at.path} with {attention.value} attention: samples of one sequence "
        f"{'see' if masked is False else 'may see'} each other",
        (at.label("several samples in one"), attention.label("sees them all", primary=False)),
        (
            "only flash attention (2, 3) and flex attention read where a sample begins",
            (
                "transformers since 4.53 builds the mask from positions where no padding mask is "
                "given; trl before 1.16 does not rely on it and warns of cross-contamination"
            ),
            "measured: a final loss higher by 0.03 to 0.15 on Pythia 160m and 410m",
        ),
        "write attn_implementation: flash_attention_2, or packing: false",
        severity=None if masked is False else "warning",
        certain=run.runs("trl>=1.16") is not None,
    )


def _joins_on_purpose(run: LintContext, at: Place) -> bool:
    """Whether this packing separates samples with no attention kernel.

    trl 0.8.6 to 0.18.2 `packing` joins samples into one sequence, and so does the strategy
    `wrapped` since; no release warns about it.
    """
    if at.path != "packing":
        return False
    return at.document.value("packing_strategy") == "wrapped" or run.runs("trl<0.19") is True


def _of_axolotl(run: LintContext, document: Document) -> Iterator[Finding]:
    at = document.get("sample_packing")
    if at is None or not _on(at):
        return
    keys = (
        "flash_attention",
        "sdp_attention",
        "flex_attention",
        "xformers_attention",
        "s2_attention",
    )
    eager, word = document.get("eager_attention"), document.get("attn_implementation")
    if any(document.value(key) for key in keys) or (word is not None and word.value):
        return
    if eager is not None and eager.value and run.runs("axolotl>=0.13") is not False:
        return
    yield Finding(
        "sample_packing without an attention that is named: samples may see each other",
        (at.label("several samples in one"), *also(eager)),
        ("Axolotl warns: does not handle cross sample decontamination",),
        "write flash_attention: true, or attn_implementation: flash_attention_2 from 0.13 on",
        severity="warning",
    )


def _attention(run: LintContext) -> Place | None:
    for kind in ("model", "sft"):
        if (found := run.said(kind, *_NAMED_BY)) is not None:
            return found
    return None


def _keeps_apart(value: object) -> bool:
    return not isinstance(value, str) or any(part in value for part in _APART)


def _on(at: Place) -> bool:
    return at.value is True or at.value == "true"


_CAPPED: Final = re.compile(r"(^|[/_-])gemma-?2-\d", re.IGNORECASE)
"""Names of Gemma 2; `gemma-2b` is the first Gemma, and Gemma 3 does not cap scores."""
_REFUSES: Final = "transformers>=5.23"
_SOFTCAPPING_KEYS: Final = (
    ("model", "attn_implementation"),
    ("trainer", "attn_implementation"),
    ("trainer", "model_init_kwargs.attn_implementation"),
    ("llamafactory", "flash_attn"),
    ("axolotl", "attn_implementation"),
    ("axolotl", "sdp_attention"),
)


@rule(
    "warning",
    "silent",
    consumers=("transformers",),
    reads=tuple(f"{kind}:{key}" for kind, key in _SOFTCAPPING_KEYS),
)
def softcapping_left_out(run: LintContext) -> Iterator[Finding]:
    """Gemma 2's attention runs in a kernel that does not cap its scores."""
    path = run.model.path if run.model is not None else run.model_name or ""
    at = _torchs_own(run)
    if at is None or _CAPPED.search(path) is None:
        return
    is_refused = run.runs(_REFUSES) is True
    yield Finding(
        f"{path} caps its attention scores, and torch's sdpa does not",
        (at.label("refused" if is_refused else "scores are not capped"),),
        (
            "attn_logit_softcapping is 50, and it was trained with 50 * tanh(score / 50)",
            (
                "transformers before 5.23 silently leaves it out"
                if not is_refused
                else "`sdpa` attention does not support `softcap`"
            ),
        ),
        "use eager, flex_attention, or flash attention 2 (flash-attn 2.6.3 and later)",
        severity="error" if is_refused else None,
        consequence="load" if is_refused else None,
    )


def _torchs_own(run: LintContext) -> Place | None:
    found = (each for kind, key in _SOFTCAPPING_KEYS for each in run.each(kind, key))
    return next((at for at in found if at.value == "sdpa" or _is_switch(at)), None)


def _is_switch(at: Place) -> bool:
    return at.path == "sdp_attention" and at.value is True


_FLASH_WORDS = ("flash_attention_2", "flash_attention_3")


@rule(
    "error",
    "step",
    consumers=("transformers",),
    reads=(
        *keys("model|trainer|axolotl", "attn_implementation", "model_init_kwargs"),
        "axolotl:flash_attention",
        "llamafactory:flash_attn",
        "llama-cookbook:use_fast_kernels",
        "simpletuner:*",
    ),
)
def flash_attention_in_fp32(run: LintContext) -> Iterator[Finding]:
    """FlashAttention 2 in a run that computes in fp32."""
    attention = run.observed("attention.implementation")
    place = run.place(attention)
    if attention is None or attention.value not in _FLASH_WORDS or place is None:
        return
    whole = _fp32(run)
    if whole is None or run.value("quantization.format", "none") not in (None, "none"):
        return
    yield Finding(
        f"{attention.value} in a run of fp32",
        (place.label("fp16 and bf16 only"), whole.label("fp32", primary=False)),
        ("the kernel fails with `FlashAttention only support fp16 and bf16 data type`",),
        "turn bf16 or fp16 on, or use sdpa",
    )


def _fp32(run: LintContext) -> Place | None:
    """The place that sets the run to fp32, if nothing makes it compute in 16 bits."""
    if run.value("precision.compute") == "fp32":
        return run.place(run.observed("precision.compute"))
    if computes_in_half(run) is not False or _deepspeed_in_half(run):
        return None
    return next(loaded_in(run, "fp32"), None)


def _deepspeed_in_half(run: LintContext) -> bool:
    return any(
        run.effective("deepspeed", f"{dtype}.enabled").value is True for dtype in ("bf16", "fp16")
    )


_SCALED: Final = (
    *("rope_scaling", "rope_parameters", "overrides_of_model_config", "rope_theta", "shift_attn"),
    *("model_init_kwargs", "overrides_of_model_kwargs"),
)


@rule("warning", "silent", consumers=("transformers",))
def longer_than_context(run: LintContext) -> Iterator[Finding]:
    """Sequences are longer than the model's context."""
    at, context = _length(run), run.model.architecture.context if run.model else 0
    length = run.observed("data.sequence") or at
    if length is None or at is None or not context or not isinstance(length.value, int):
        return
    if length.value <= context or any(at.document.get(key) for key in _SCALED):
        return
    yield Finding(
        f"sequences of {length.value} tokens exceed the model's context of {context}",
        (at.label("longer than the model was made for"),),
        (
            "positions beyond the context were never trained, and without scaling mean nothing",
            "a model with learned positions ends there with an index error",
        ),
        f"write {context}, or scale its positions (rope_scaling)",
        severity="note" if _CHANGED.search(at.document.text) or _counts_by_grid(run) else None,
        sum=(Term("sequence", length.value, "tokens"), Term("context", context, "tokens")),
    )


_CHANGED: Final = re.compile(r"(?i)#[^\n]*(?:\brope\b|max_position_embeddings|\byarn\b)")
"""A comment that the model's own positions have been changed."""
_BY_GRID: Final = re.compile(r"qwen\d.*_(?:vl|omni)|glm4\w*v")
"""Families in which an image advances the positions by the longest side of its grid, and not by its
tokens: transformers 5.23.0 models/qwen2_5_vl and glm4v, `get_rope_index`."""


def _counts_by_grid(run: LintContext) -> bool:
    """Whether samples with images take fewer positions than they have tokens."""
    return run.model is not None and _BY_GRID.match(run.model.architecture.family) is not None


def _length(run: LintContext) -> Place | None:
    """The place that sets the maximum sequence length."""
    length = run.place(run.observed("data.sequence")) or flag(run)
    generated = (run.said(kind, "max_completion_length") for kind in ("grpo", "rloo"))
    return length or next((each for each in generated if each is not None), None)


_TRL_SCRIPTS: Final = ("sft", "dpo", "grpo", "kto", "reward", "rloo")
"""Kinds of TRL's scripts, whose files have the key."""


@rule(
    "error",
    "init",
    consumers=("trl", "transformers"),
    reads=keys("|".join(_TRL_SCRIPTS), "dataset_streaming"),
)
def stream_without_steps(run: LintContext) -> Iterator[Finding]:
    """The data is a stream, but no number of steps is set."""
    for document in run.of(*_TRL_SCRIPTS):
        at = where(document, "dataset_streaming=true")
        if at is None or document.is_view or "max_steps" in document.unknown:
            continue
        steps = document.get("max_steps")
        if steps is not None and isinstance(steps.value, int) and steps.value > 0:
            continue
        yield Finding(
            "dataset_streaming requires max_steps",
            (at.label("of no known length"), *also(steps)),
            ("The train_dataset does not implement __len__, max_steps has to be specified",),
            "write max_steps",
            severity="warning" if steps is None and is_fragment(document) else None,
        )
