"""Sequences are longer than the model's context."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.sequence.length import flag

_SCALED: Final = (
    *("rope_scaling", "rope_parameters", "overrides_of_model_config", "rope_theta", "shift_attn"),
    *("model_init_kwargs", "overrides_of_model_kwargs"),
)


def _check(run: Run) -> Iterator[Finding]:
    at, context = _told(run), run.model.architecture.context if run.model else 0
    length = run.observed("data.sequence") or at
    if length is None or at is None or not context or not isinstance(length.value, int):
        return
    if length.value <= context or any(at.document.get(key) for key in _SCALED):
        return
    yield Finding(
        f"sequences of {length.value} tokens for a model with a context of {context}",
        (at.label("longer than the model was made for"),),
        (
            "positions beyond the context were never trained, and without scaling mean nothing",
            "learned positions end there: an index error",
        ),
        f"write {context}, or scale its positions (rope_scaling)",
        sum=(Term("sequence", length.value, "tokens"), Term("context", context, "tokens")),
    )


def _told(run: Run) -> Place | None:
    """Where the longest sequence is written."""
    length = run.place(run.observed("data.sequence")) or flag(run)
    generated = (run.said(kind, "max_completion_length") for kind in ("grpo", "rloo"))
    return length or next((each for each in generated if each is not None), None)


RULE = Rule(
    name="longer-than-context",
    severity="warning",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 5.23.0 modeling_rope_utils.py: frequencies by max_position_embeddings; "
            "the model's own config.json"
        ),
        (
            "axolotl 0.8.1 to 0.19.0 loaders/model.py: increasing "
            "model.config.max_position_embeddings; llamafactory 0.9.1 to 0.9.5 "
            "model/model_utils/rope.py `configure_rope`: only where rope_scaling is set"
        ),
    ),
    check=_check,
)
