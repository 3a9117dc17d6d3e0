"""The best model is sought at the wrong end of its metric."""

import re
from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_LOW: Final = re.compile(
    r"(?:^|_)(?:loss|wer|cer|ter|perplexity|ppl|rmse|mse|mae|fid|error|error_rate)$"
)
_HIGH: Final = re.compile(
    r"(?:^|_)(?:accuracy|acc|f1|bleu|sacrebleu|rouge(?:1|2|l|lsum)?|precision|recall|auc|roc_auc|"
    r"exact_match|mcc|matthews_correlation|pearson|spearmanr|map|ndcg|reward)$",
    re.IGNORECASE,
)


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("trainer"):
        metric = document.get("metric_for_best_model")
        if metric is None or not isinstance(metric.value, str) or not _is_used(document):
            continue
        said = document.get("greater_is_better")
        if "greater_is_better" in document.unknown or (document.is_view and said is None):
            continue
        greater = _greater(run, metric.value) if said is None else said.value
        wanted = _wanted(metric.value)
        if isinstance(greater, bool) and wanted is not None and greater is not wanted:
            yield _finding(metric, said, greater)


def _is_used(document: Document) -> bool:
    best = document.value("load_best_model_at_end") is True
    return best or document.value("save_strategy") == "best"


def _wanted(metric: str) -> bool | None:
    name = metric.lower()
    if _LOW.search(name):
        return False
    return True if _HIGH.search(name) else None


def _greater(run: Run, metric: str) -> Any:
    """The default: greater is better, unless the name ends in loss (in 4.40, is loss)."""
    if run.runs("transformers<4.41"):
        return metric not in ("loss", "eval_loss")
    return not metric.endswith("loss")


def _finding(metric: Place, said: Place | None, greater: bool) -> Finding:
    end = "highest" if greater else "lowest"
    fix = Fix((said.replaced(not greater),), "safe") if said is not None else None
    added = None if said is not None else metric.document.added("greater_is_better", not greater)
    return Finding(
        f"the best model is the one with the {end} {metric.value}",
        (
            *([said.label("the wrong way round")] if said is not None else []),
            metric.label("", primary=said is None),
        ),
        () if said is not None else ("greater is better unless the metric's name ends in loss",),
        f"write greater_is_better: {str(not greater).lower()}",
        fix or (Fix((added,), "safe") if added is not None else None),
        severity="error" if metric.value.endswith("loss") else None,
    )


RULE = Rule(
    name="best-model-upside-down",
    severity="warning",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.44.2 to 5.23.0 training_args.py `__post_init__`: greater_is_better = "
            "not metric_for_best_model.endswith('loss'); 4.40.2: not in ['loss', 'eval_loss']"
        ),
        "transformers 5.23.0 trainer.py `_determine_best_metric`: np.greater or np.less",
    ),
    check=_check,
)
