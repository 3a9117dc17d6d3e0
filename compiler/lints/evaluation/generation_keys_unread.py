"""Evaluation is told how to generate, and does not."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_KEYS: Final = ("generation_max_length", "generation_num_beams")
_ASKS: Final = "predict_with_generate"


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("hf"):
        if document.is_view or _ASKS in document.unknown or document.value(_ASKS) is True:
            continue
        said = [each for key in _KEYS if (each := document.get(key)) and each.value]
        if not said:
            continue
        off = document.get(_ASKS)
        others = () if off is None else (off.label("off", primary=False),)
        yield Finding(
            f"{said[0].path} without predict_with_generate",
            (said[0].label("how to generate"), *others),
            ("evaluation and prediction compute a loss and logits, and generate nothing",),
            f"write predict_with_generate: true, or leave {said[0].path} out",
        )


RULE = Rule(
    name="generation-keys-unread",
    severity="warning",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 training_args_seq2seq.py: predict_with_generate is "
            "False unless given; trainer_seq2seq.py `prediction_step` goes to the Trainer's own "
            "step without it"
        ),
    ),
    check=_check,
)
