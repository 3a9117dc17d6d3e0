"""Evaluation is to generate, and to return nothing but the loss."""

from collections.abc import Iterator

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("trainer"):
        asks, alone = document.get("predict_with_generate"), document.get("prediction_loss_only")
        if asks is None or alone is None or asks.value is not True or alone.value is not True:
            continue
        yield Finding(
            "predict_with_generate beside prediction_loss_only",
            (asks.label("asks for answers"), alone.label("the loss alone", primary=False)),
            ("evaluation then generates nothing, and compute_metrics is never called",),
            "leave prediction_loss_only out",
        )


RULE = Rule(
    name="generation-beside-loss-only",
    severity="warning",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 trainer_seq2seq.py `prediction_step`: `if not "
            "self.args.predict_with_generate or prediction_loss_only`; trainer.py "
            "`evaluation_loop`: metrics only where there are predictions"
        ),
    ),
    check=_check,
)
