"""An adapter is to speak in turns whose marks the base model has never seen."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.adapter.lora import last, loras
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_BASE: Final = re.compile(r"/(meta-)?llama-3(\.[12])?-\d+b$")
"""Base models of Llama 3, whose rows of `<|eot_id|>` and its like were never trained."""
_WORDS: Final = ("llama3",)
_EMBEDDINGS: Final = frozenset({"embed_tokens", "lm_head"})


def _check(run: Run) -> Iterator[Finding]:
    for lora in loras(run):
        document = lora.document
        at, model = document.get("template"), document.get("model_name_or_path")
        if document.kind != "llamafactory" or at is None or at.value not in _WORDS or not model:
            continue
        name = f"/{str(model.value).lower().rpartition('/')[2]}"
        is_learnt = bool(_EMBEDDINGS & {last(each) for each in lora.saved})
        if document.value("stage", "sft") != "pt" and _BASE.search(name) and not is_learnt:
            yield Finding(
                f"template {at.value} for a base model whose embeddings are not trained",
                (at.label("its marks are untrained"), model.label("a base model", primary=False)),
                ("nothing has taught it to end a turn by <|eot_id|>: answers go on and repeat",),
                "write template: default, tune the Instruct model, or add "
                "additional_target: embed_tokens,lm_head",
            )


RULE = Rule(
    name="turn-words-untrained",
    severity="warning",
    consequence="silent",
    consumers=("llamafactory",),
    sources=(
        (
            "hiyouga/LlamaFactory#5593 (the maintainer: use `default` template for llama3 base "
            "models), #3813, #5145"
        ),
        (
            "llamafactory 0.9.5 extras/constants.py `register_model_group`: a template of its own "
            "is set only for names with -Chat, -Distill, -Instruct or -Thinking"
        ),
    ),
    check=_check,
)
