"""Positions are to be stretched for sequences that the model takes as it is."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix, Term
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_DEFAULT: Final = 2048
"""llamafactory 0.9.1 to 0.9.5 hparams/data_args.py `cutoff_len`."""
_SHORTEST: Final = 4096
"""A model whose own positions are stretched is measured by what they were before: 8192 for
Llama 3.1, 4096 for DeepSeek V2 (config.json `original_max_position_embeddings`)."""


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("llamafactory"):
        at, length = document.get("rope_scaling"), document.get("cutoff_len")
        if at is None or not isinstance(at.value, str) or "cutoff_len" in document.unknown:
            continue
        longest = run.model.architecture.context if run.model is not None else None
        tokens = length.value if length is not None else _DEFAULT
        if not longest or not isinstance(tokens, int) or isinstance(tokens, bool):
            continue
        if tokens > min(longest, _SHORTEST):
            continue
        yield Finding(
            f"rope_scaling {at.value} for {tokens} tokens of a model that takes {longest}",
            (at.label("left out"), *([length.label("", primary=False)] if length else [])),
            ("a line of the log says so: Disabling rope scaling; the model trains as it is",),
            "remove rope_scaling, or raise cutoff_len beyond what the model takes",
            Fix((at.removed(),), "safe"),
            sum=(Term("the sequence", tokens, "tokens"), Term("the model", longest, "tokens")),
        )


RULE = Rule(
    name="rope-scaling-without-need",
    severity="warning",
    consequence="silent",
    consumers=("llamafactory",),
    sources=(
        (
            "llamafactory 0.9.1 to 0.9.5 model/model_utils/rope.py `configure_rope`: Input length "
            "is smaller than max length. Disabling rope scaling."
        ),
    ),
    check=_check,
)
