"""Patterns of what trains that no weight of an adapter fits: it is frozen with its base."""

import re
from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.lints.axolotl.asked import configs
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run

_OF_THE_BASE: Final = re.compile(r"\^?(model|transformer|lm_head|gpt_neox|backbone|language_model)")
"""How names of weights begin. Beside an adapter each begins with `base_model.model.`, and a pattern
has to fit from there: axolotl 0.13.2 and 0.19.0 utils/freeze.py `LayerNamePattern.match`."""
_ENDS: Final = ("lm_head", "embed_tokens")


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        at, adapter = document.get("unfrozen_parameters"), document.get("adapter")
        if at is None or adapter is None or adapter.value not in ("lora", "qlora"):
            continue
        patterns = at.value if isinstance(at.value, list) else []
        if patterns and all(_OF_THE_BASE.match(str(each)) for each in patterns):
            yield Finding(
                f"unfrozen_parameters freezes the adapter {adapter.value} too",
                (at.label("fits no weight"), adapter.label("", primary=False)),
                (
                    "beside an adapter names begin with base_model.model: nothing is left to train",
                    "a warning says: All parameters are frozen. Model will not be trained",
                ),
                "remove it, or write lora_modules_to_save",
                consequence=_goes_on(document, patterns),
            )


def _goes_on(document: Document, patterns: list[Any]) -> Consequence:
    """Inputs get a gradient for recomputation, or for either end; else there is none at all."""
    is_end = any(end in str(each) for each in patterns for end in _ENDS)
    return "silent" if is_end or document.value("gradient_checkpointing") else "step"


RULE = Rule(
    name="adapter-frozen-with-the-base",
    severity="error",
    consequence="silent",
    consumers=("axolotl",),
    sources=(
        (
            "axolotl 0.8.1 to 0.19.0 train.py `setup_model_and_tokenizer`: freeze_layers_except "
            "after the adapter is there, enable_input_require_grads for lm_head and embed_tokens; "
            "utils/freeze.py"
        ),
        "axolotl-ai-cloud/axolotl#1464",
    ),
    check=_check,
)
