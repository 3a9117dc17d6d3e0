"""Rows of Seq2SeqTrainingArguments for what evaluation computes besides the loss."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, derived, same

_SEQ2SEQ: Final = (
    "transformers 4.40.2 to 5.23.0 training_args_seq2seq.py `Seq2SeqTrainingArguments`, and "
    "trainer_seq2seq.py `Seq2SeqTrainer`, which alone reads them"
)
_STEPS: Final = "eval_accumulation_steps"
_KEPT: Final = (
    "transformers 4.40.2 to 5.23.0 trainer.py `evaluation_loop`: to_cpu_and_numpy every so many "
    "batches; absent, after the last"
)


def writes_answers(plan: Plan) -> bool:
    """Whether evaluation generates answers."""
    return plan.evaluation.predictions == "answers"


def _keeps_predictions(plan: Plan) -> bool:
    return plan.evaluation.predictions != "loss"


def _write(plan: Plan) -> Mapping[str, Any]:
    if not _keeps_predictions(plan):
        return {}
    kept = {_STEPS: plan.evaluation.kept_batches}
    if writes_answers(plan):
        return {"predict_with_generate": True, **kept}
    return {"prediction_loss_only": False, **kept}


def _read(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Read what evaluation computes.

    False is also the default, with which evaluation computes only the loss unless the script
    computes metrics. Only a run that keeps logits sets the number of batches to keep.
    """
    if found.get("prediction_loss_only") is True:
        return {"evaluation.predictions": "loss"}
    if found.get("predict_with_generate") is True:
        return {"evaluation.predictions": "answers"}
    kept = found.get(_STEPS) is not None
    return {"evaluation.predictions": "logits" if kept else "loss"}


def _longest(plan: Plan) -> int:
    """`max_length` of generate, which includes the prompt or the decoder's start token."""
    asked = plan.evaluation
    if plan.model.kind == "encoder-decoder":
        return asked.completion + 1
    return asked.prompt + plan.data.image_tokens + asked.completion


PREDICTIONS: Final = (
    Entry(
        ("predict_with_generate", "prediction_loss_only", _STEPS),
        ("evaluation.predictions",),
        _write,
        _read,
        f"{_SEQ2SEQ}; trainer.py `evaluate`: without compute_metrics the loss alone",
        absent=((ALWAYS, {"evaluation.predictions": "loss"}),),
    ),
    derived("generation_max_length", _longest, f"{_SEQ2SEQ} `evaluate`", when=writes_answers),
    same("generation_num_beams", "evaluation.beams", f"{_SEQ2SEQ} `evaluate`", when=writes_answers),
    same(_STEPS, "evaluation.kept_batches", _KEPT, default=None, when=_keeps_predictions),
)
