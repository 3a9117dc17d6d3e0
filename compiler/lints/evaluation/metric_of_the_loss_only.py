"""A metric is to choose the best model, and predictions are thrown away."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.evaluation.asked import is_loss, never_evaluates
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("hf", "llamafactory"):
        metric, only = (
            document.get(key) for key in ("metric_for_best_model", "prediction_loss_only")
        )
        if metric is None or only is None or only.value is not True or document.is_view:
            continue
        if not isinstance(metric.value, str) or is_loss(metric.value) or never_evaluates(document):
            continue
        yield Finding(
            f"metric_for_best_model {metric.value} with prediction_loss_only",
            (metric.label("never computed"), only.label("", primary=False)),
            ("KeyError at the first evaluation: it is not found in the evaluation metrics",),
            "remove prediction_loss_only, or take the loss",
            Fix((only.removed(),), "unsafe"),
        )


RULE = Rule(
    name="metric-of-the-loss-only",
    severity="error",
    consequence="step",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 trainer.py `evaluation_loop`: prediction_loss_only "
            "returns "
            "no logits, compute_metrics needs them; 5.23.0 `_determine_best_metric`: KeyError"
        ),
    ),
    check=_check,
)
