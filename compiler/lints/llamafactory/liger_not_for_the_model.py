"""Liger's kernels are asked for in a model that LLaMA-Factory has none for."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_EARLY: Final = frozenset(
    {"gemma", "gemma2", "llama", "mistral", "mixtral", "phi3", "qwen2", "qwen2_vl"}
)
_LATER: Final = frozenset(
    {"gemma3", "gemma3_text", "glm", "glm4", "glm4v", "granite", "llava", "mllama", "olmo2"}
    | {"paligemma", "qwen2_5_vl", "qwen3", "qwen3_moe", "qwen3_next", "qwen3_5", "gpt_oss"}
)
"""Kinds of models from 0.9.2 to 0.9.5 on."""
_FIRST: Final = "llamafactory<0.9.2"


def _check(run: Run) -> Iterator[Finding]:
    card = run.model.card if run.model is not None else None
    kind = card.config.get("model_type") if card is not None else None
    if not isinstance(kind, str) or kind in _EARLY:
        return
    if kind in _LATER and not run.runs(_FIRST):
        return
    for document in run.of("llamafactory"):
        at = document.get("enable_liger_kernel")
        if at is not None and at.value is True and not document.is_view:
            yield Finding(
                f"enable_liger_kernel does nothing in a model of kind {kind}",
                (at.label("left out"),),
                ("Current model does not support liger kernel: a line of the log says so",),
                "remove it",
                Fix((at.removed(),), "safe"),
            )


RULE = Rule(
    name="liger-not-for-the-model",
    severity="warning",
    consequence="silent",
    consumers=("llamafactory",),
    sources=(
        (
            "llamafactory 0.9.0 to 0.9.5 model/model_utils/liger_kernel.py `apply_liger_kernel`: "
            "Current model does not support liger kernel"
        ),
    ),
    check=_check,
)
