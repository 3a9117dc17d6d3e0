"""Shifted short attention is asked for in a model that LLaMA-Factory cannot give it to."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_PATCHED: Final = "llama"


def _check(run: Run) -> Iterator[Finding]:
    model = run.model
    for document in run.of("llamafactory"):
        at = document.get("shift_attn")
        if at is None or at.value is not True or model is None:
            continue
        if model.architecture.family == _PATCHED:
            continue
        yield Finding(
            f"shift_attn does nothing in {model.path} ({model.architecture.family})",
            (at.label("left out"),),
            ("only Llama's attention is patched; a line of the log says so",),
            "remove it",
            Fix((at.removed(),), "safe"),
        )


RULE = Rule(
    name="shifted-attention-ignored",
    severity="warning",
    consequence="silent",
    consumers=("llamafactory",),
    sources=(
        (
            "llamafactory 0.9.5 model/model_utils/longlora.py `configure_longlora`: Current model "
            "does not support shift short attention; extras/constants.py "
            "`SUPPORTED_CLASS_FOR_S2ATTN`"
        ),
    ),
    check=_check,
)
