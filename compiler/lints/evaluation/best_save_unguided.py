"""Only the best model is to be saved, and nothing says which that is."""

from collections.abc import Iterator

from tunec.compiler.lints.evaluation.asked import never_evaluates, strategy_of
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("trainer"):
        save = document.get("save_strategy")
        if save is None or save.value != "best" or document.is_view:
            continue
        said, metric = strategy_of(document), document.get("metric_for_best_model")
        loads = document.value("load_best_model_at_end") is True
        if metric is None and not loads and "metric_for_best_model" not in document.unknown:
            yield Finding(
                "save_strategy best without metric_for_best_model",
                (save.label("best by what"),),
                ("the trainer refuses to start; only load_best_model_at_end has a default",),
                "write metric_for_best_model: loss",
            )
        elif never_evaluates(document):
            yield Finding(
                "save_strategy best without evaluation saves nothing",
                (
                    save.label("never"),
                    *([said.label("", primary=False)] if said is not None else []),
                ),
                ("a model is the best by an evaluation, and there is none",),
                "write eval_strategy: epoch",
                consequence="silent",
            )


RULE = Rule(
    name="best-save-unguided",
    severity="error",
    consequence="init",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.51.3 to 5.23.0 trainer.py `_validate_args`: ValueError, "
            "`args.metric_for_best_model` must be provided when using 'best' save_strategy; "
            "`_maybe_log_save_evaluate`: saves where an evaluation found a new best"
        ),
        "transformers 5.23.0 run on CPU without evaluation: 12 steps and no checkpoint",
    ),
    check=_check,
)
