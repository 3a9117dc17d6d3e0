"""The best model is chosen by a metric that evaluation does not return."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.evaluation.asked import is_loss, never_evaluates
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_OF_TRL: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "sft": (
        r"mean_token_accuracy|entropy|aux_loss|num_tokens",
        ("trl>=0.15,<0.22", "trl>=0.27,<1.5"),
    ),
    "dpo": (r"(rewards|logps|logits)/.*|mean_token_accuracy|entropy", ("trl>=0.29,<1.5",)),
    "grpo": (r"reward|reward_std|kl|entropy|(rewards|completions)/.*", ("trl>=0.14,<1.5",)),
    "rloo": (r"reward|reward_std|kl|entropy|(rewards|completions)/.*", ("trl>=0.22,<1.5",)),
    "reward": (r"margin|(max|min|mean)_reward", ("trl>=0.27,<1.5",)),
}
"""What a trainer counts itself, and the releases that log it and do not hand it back."""
_TIMES: Final = frozenset({"runtime", "samples_per_second", "steps_per_second"})
_COMPUTED: Final = ("compute_accuracy", "predict_with_generate")
_CHOOSING: Final = ("load_best_model_at_end", "save_strategy=best")


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("llamafactory", *_OF_TRL):
        if document.is_view or never_evaluates(document):
            continue
        metric = document.get("metric_for_best_model")
        name = str(metric.value).removeprefix("eval_") if metric and metric.value else None
        if document.kind == "llamafactory":
            yield from _of_llamafactory(document, metric, name)
        elif metric is not None and name is not None:
            yield from _of_trl(run, document, metric, name)


def _of_trl(run: Run, document: Document, metric: Place, name: str) -> Iterator[Finding]:
    names, releases = _OF_TRL[document.kind]
    if not re.fullmatch(names, name) or not any(run.runs(each) for each in releases):
        return
    why = f"{run.release('trl')} adds it to the log, and not to what evaluation returns"
    yield _missing(metric, why, "write metric_for_best_model: eval_loss, or use trl 1.5")


def _of_llamafactory(
    document: Document, metric: Place | None, name: str | None
) -> Iterator[Finding]:
    each = where(document, "eval_on_each_dataset & eval_dataset")
    choosing = next((at for key in _CHOOSING if (at := where(document, key))), None)
    if each is not None and (name == "loss" or (name is None and choosing is not None)):
        at = metric or choosing
        if at is not None:
            why = "each data set has metrics of its own: eval_NAME_loss"
            yield _missing(at, why, "write metric_for_best_model: eval_NAME_loss", each)
        return
    if metric is None or name is None or is_loss(name) or name in _TIMES:
        return
    is_open = bool(document.unknown & {*_COMPUTED, "stage"}) or where(document, _COMPUTED[0])
    if is_open or where(document, _COMPUTED[1]) or document.value("stage", "sft") != "sft":
        return
    yield _missing(
        metric,
        "without compute_accuracy and predict_with_generate evaluation returns the loss alone",
        "write compute_accuracy: true, or take eval_loss",
    )


def _missing(at: Place, why: str, what: str, beside: Place | None = None) -> Finding:
    named = at.value if isinstance(at.value, str) and at.path.startswith("metric") else "eval_loss"
    return Finding(
        f"the best model is chosen by {named}, which evaluation does not return",
        (
            at.label("KeyError at the first evaluation"),
            *([beside.label("", primary=False)] if beside is not None else []),
        ),
        (why,),
        what,
    )


RULE = Rule(
    name="metric-not-returned",
    severity="error",
    consequence="step",
    consumers=("transformers", "trl", "llamafactory"),
    sources=(
        (
            "transformers 4.57.1 and 5.23.0 trainer.py `_determine_best_metric`: KeyError, not "
            "found in the evaluation metrics; `evaluate` of several data sets: a prefix for each"
        ),
        (
            "trl 0.15.2 to 0.21.0 and 0.27.2 to 1.4.0 trainer/sft_trainer.py `log`, 0.29.0 to "
            "1.4.0 dpo_trainer.py, 0.15.2 to 1.4.0 grpo_trainer.py, 0.22.2 to 1.4.0 "
            "rloo_trainer.py, 0.27.2 to 1.4.0 reward_trainer.py: a new dict; 1.5.0 to 1.16.0: "
            "logs.update"
        ),
        (
            "llamafactory 0.9.5 train/sft/workflow.py `run_sft`: compute_metrics with "
            "predict_with_generate or compute_accuracy only; data/data_utils.py `split_dataset`"
        ),
        "huggingface/trl#5800, #5811, #3384; huggingface/sentence-transformers#2749",
    ),
    check=_check,
)
