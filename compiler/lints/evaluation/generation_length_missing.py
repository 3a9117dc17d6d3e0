"""Evaluation generates text, and nobody says how long."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_LENGTHS: Final = (
    *("generation_max_length", "generation_config", "max_new_tokens", "val_max_target_length"),
    *("max_length", "max_target_length"),
)
"""The last is a flag of transformers' examples and of THUDM/ChatGLM-6B ptuning/main.py: they take
it for the length of what is generated."""


def _check(run: Run) -> Iterator[Finding]:
    if run.effective("deepspeed", "zero_optimization.stage").value == 3:
        return  # generation under ZeRO-3 is a fault of its own
    for document in run.of("hf"):
        asks = document.get("predict_with_generate")
        if asks is None or asks.value is not True or document.is_view:
            continue
        if any(document.get(key) or key in document.unknown for key in _LENGTHS):
            continue
        yield Finding(
            "predict_with_generate without generation_max_length",
            (asks.label("how long"),),
            (
                (
                    "the model's own generation_config decides; where it says nothing, generation "
                    "ends at 20 tokens, the prompt of a decoder counted in"
                ),
            ),
            "write generation_max_length, prompt included",
        )


RULE = Rule(
    name="generation-length-missing",
    severity="warning",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 trainer_seq2seq.py `evaluate`: max_length only where "
            "generation_max_length is given; 5.23.0 generation/configuration_utils.py: "
            "max_length 20"
        ),
    ),
    check=_check,
)
