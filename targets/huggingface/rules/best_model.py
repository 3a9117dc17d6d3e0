"""Rules about choosing and loading the best model."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix, Label
from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.effective import Effective
from tunec.compiler.lints.facts.training_loop import (
    is_beside_a_file,
    is_loss,
    is_number,
    is_whole,
    never_evaluates,
    strategy_of,
)
from tunec.compiler.lints.kinds import fields_of
from tunec.compiler.lints.rows import Row, rows
from tunec.compiler.lints.rule import Finding, keys, rule

_OFTEN: Final = re.compile(r"(?:eval|save)\w*_(?:ratio|per_epoch|interval|freq|frequency|every)\b")


@rule("error", "parse", consumers=("transformers",), reads=("trainer:load_best_model_at_end",))
def best_model_cadence(run: LintContext) -> Iterator[Finding]:
    """The best model is to be loaded, but saving and evaluation have different intervals."""
    for best in run.each("trainer", "load_best_model_at_end"):
        if best.value is True and not _is_set_by_script(best.document):
            yield from _cadence(run, best)


def _is_set_by_script(document: Document) -> bool:
    """Whether a script has its own flag for how often it saves or evaluates."""
    if document.format != "shell":
        return False
    strange = document.found.keys() - fields_of("hf") - fields_of(document.kind)
    return any(_OFTEN.search(name) for name in strange)


def _cadence(run: LintContext, best: Place) -> Iterator[Finding]:
    evaluation = run.said("trainer", "eval_strategy", "evaluation_strategy")
    save = run.effective("trainer", "save_strategy")
    if evaluation is None and run.hides("trainer", "eval_strategy", "evaluation_strategy"):
        return
    if evaluation is None and _is_elsewhere(run, best.document):
        return
    asked = _word(evaluation.value) if evaluation else "no"
    if save.value == "best" or not save.known:
        return
    if asked != _word(save.value):
        labels = [place for place in (evaluation, save.place) if place is not None]
        yield Finding(
            f"load_best_model_at_end needs one strategy: evaluation is {asked}, saving "
            f"{save.value}",
            (best.label(""), *(each.label("", primary=False) for each in labels)),
            (),
            f"write save_strategy: {asked}" if asked != "no" else "write eval_strategy: steps",
        )
    elif asked == "steps":
        yield from _steps(run, best)


def _is_elsewhere(run: LintContext, document: Document) -> bool:
    """Whether a command's program is in another repository and may have its own defaults."""
    programs = run.started.get(document.name, {}) if document.format == "shell" else {}
    ours = (each for each in programs if each.endswith(".py"))
    return any(map(run.own.lacks_program, ours))


def _steps(run: LintContext, best: Place) -> Iterator[Finding]:
    save, every = run.effective("trainer", "save_steps"), run.effective("trainer", "eval_steps")
    if run.hides("trainer", "save_steps", "eval_steps"):
        return
    if every.value is None:
        every = run.effective("trainer", "logging_steps")
    if _is_share(save.value) != _is_share(every.value) and _is_known(save, every):
        yield Finding(
            f"save_steps {save.value} with eval_steps {every.value}: one is a share of all steps",
            _interval_labels(best, save, every),
            ("a number below 1 is a share, which cannot be compared with a number of steps",),
            "write both as numbers of steps, or both as shares",
        )
    if _is_share(save.value) and _is_share(every.value):
        is_old = run.runs("transformers<4.53") is True  # it compares the shares themselves, too
        is_none = bool((save.value * _FINE) % (every.value * _FINE))
        if is_none or (is_old and save.value % every.value):
            down = every.value * max(1, round(save.value / every.value))
            down = every.value if is_old else down  # others may fail by a rounding
            yield _no_multiple(best, save, every, f"{down:g}", () if is_none else (_ROUNDED,))
    elif _whole(save.value) and _whole(every.value) and save.value % every.value:
        down = save.value - save.value % every.value or every.value
        yield _no_multiple(best, save, every, str(down))


_FINE: Final = 1_000_000
"""The factor that turns shares into integers: transformers 4.40.2 to 5.23.0 `__post_init__`,
LARGE_MULTIPLIER. Up to 4.52.4 the next check refuses any share that is no multiple by `%`
(transformers#38217)."""


_ROUNDED: Final = (
    "as binary fractions they leave a rest, and transformers 4.53 is the first to round"
)


def _no_multiple(
    best: Place, save: Effective, every: Effective, mended: str, why: tuple[str, ...] = ()
) -> Finding:
    is_none = "counts as no multiple" if why else "is no multiple"
    return Finding(
        f"save_steps {save.value} {is_none} of eval_steps {every.value}",
        _interval_labels(best, save, every),
        (*why, "the best model can only be loaded if every save follows an evaluation"),
        f"write save_steps: {mended}",
    )


def _interval_labels(best: Place, save: Effective, every: Effective) -> tuple[Label, ...]:
    places = [each.place for each in (save, every) if each.place is not None]
    return tuple(at.label("", primary=not n) for n, at in enumerate((*places, best)))


def _is_known(*numbers: Effective) -> bool:
    return all(is_number(each.value) and each.value > 0 for each in numbers)


def _is_share(value: Any) -> bool:
    return is_number(value) and 0 < value < 1


def _whole(value: Any) -> bool:
    return is_whole(value) and value >= 1


def _word(value: Any) -> str:
    return "no" if value is False else str(value)


@rule("error", "init", consumers=("transformers",), reads=("trainer:save_only_model",))
def best_model_of_weights_only(run: LintContext) -> Iterator[Finding]:
    """The best model is to be loaded from checkpoints that the sharded engine cannot load."""
    only, best = (run.said("trainer", key) for key in ("save_only_model", "load_best_model_at_end"))
    if only is None or best is None or only.value is not True or best.value is not True:
        return
    engine = run.of("deepspeed")
    fsdp = run.said("trainer", "fsdp") or _launched(run)
    sharded = run.said("trainer", "deepspeed") or (fsdp if fsdp and fsdp.value else None)
    if engine or sharded:
        name = "DeepSpeed" if engine or not fsdp else "FSDP"
        yield Finding(
            f"{name} cannot load_best_model_at_end from checkpoints of save_only_model",
            (only.label(""), best.label("", primary=False), *also(sharded)),
            (f"{name} loads a checkpoint with the optimizer's states, and these hold none",),
            "remove one of the two",
        )


def _launched(run: LintContext) -> Place | None:
    """The place where the launcher's file requests FSDP."""
    asks = (each for each in run.each("accelerate", "distributed_type") if each.value == "FSDP")
    return next(asks, None)


_LOW: Final = re.compile(
    r"(?:^|_)(?:loss|wer|cer|ter|perplexity|ppl|rmse|mse|mae|fid|error|error_rate)$"
)
_HIGH: Final = re.compile(
    r"(?:^|_)(?:accuracy|acc|f1|bleu|sacrebleu|rouge(?:1|2|l|lsum)?|precision|recall|auc|roc_auc|"
    r"exact_match|mcc|matthews_correlation|pearson|spearmanr|map|ndcg|reward)$",
    re.IGNORECASE,
)


@rule("warning", "silent", consumers=("transformers",), reads=("trainer:metric_for_best_model",))
def best_model_upside_down(run: LintContext) -> Iterator[Finding]:
    """The best model is chosen by the wrong direction of its metric."""
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
            yield _upside_down(metric, said, greater)


def _is_used(document: Document) -> bool:
    best = document.value("load_best_model_at_end") is True
    return best or document.value("save_strategy") == "best"


def _wanted(metric: str) -> bool | None:
    name = metric.lower()
    if _LOW.search(name):
        return False
    return True if _HIGH.search(name) else None


def _greater(run: LintContext, metric: str) -> Any:
    """The default of greater_is_better: False if the metric ends in loss (in 4.40, is the loss)."""
    if run.runs("transformers<4.41"):
        return metric not in ("loss", "eval_loss")
    return not metric.endswith("loss")


def _upside_down(metric: Place, said: Place | None, greater: bool) -> Finding:
    end = "highest" if greater else "lowest"
    fix = Fix((said.replaced(not greater),), "unsafe") if said is not None else None
    added = None if said is not None else metric.document.added("greater_is_better", not greater)
    return Finding(
        f"the best model is the one with the {end} {metric.value}",
        (
            *([said.label("the wrong way round")] if said is not None else []),
            metric.label("", primary=said is None),
        ),
        () if said is not None else ("greater is better unless the metric's name ends in loss",),
        f"write greater_is_better: {str(not greater).lower()}",
        fix or (Fix((added,), "unsafe") if added is not None else None),
        severity="error" if metric.value.endswith("loss") else None,
    )


@rule("error", "init", consumers=("transformers",), reads=("trainer:save_strategy",))
def best_save_unguided(run: LintContext) -> Iterator[Finding]:
    """Only the best model is saved, but no setting defines which model is best."""
    for document in run.of("trainer"):
        save = document.get("save_strategy")
        if save is None or save.value != "best" or document.is_view or is_beside_a_file(document):
            continue
        said, metric = strategy_of(document), document.get("metric_for_best_model")
        loads = document.value("load_best_model_at_end") is True
        if metric is None and not loads and "metric_for_best_model" not in document.unknown:
            yield Finding(
                "save_strategy best needs metric_for_best_model",
                (save.label("best by what"),),
                ("the trainer refuses to start; only load_best_model_at_end implies a metric",),
                "write metric_for_best_model: loss",
            )
        elif never_evaluates(document):
            yield Finding(
                "save_strategy best without evaluation saves nothing",
                (save.label("never"), *also(said)),
                ("evaluation decides which model is best, and there is none",),
                "write eval_strategy: epoch",
                consequence="silent",
            )


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
"""Metrics that a trainer computes itself, and the releases that log them but do not return them."""
_TIMES: Final = frozenset({"runtime", "samples_per_second", "steps_per_second"})
_COMPUTED: Final = ("compute_accuracy", "predict_with_generate")
_CHOOSING: Final = ("load_best_model_at_end", "save_strategy=best")


@rule(
    "error",
    "step",
    consumers=("transformers", "trl", "llamafactory"),
    reads=(*keys("trainer", "metric_for_best_model"), "llamafactory:eval_on_each_dataset"),
)
def metric_not_returned(run: LintContext) -> Iterator[Finding]:
    """The best model is chosen by a metric that evaluation does not return."""
    for document in run.of("llamafactory", *_OF_TRL):
        if document.is_view or never_evaluates(document):
            continue
        metric = document.get("metric_for_best_model")
        name = str(metric.value).removeprefix("eval_") if metric and metric.value else None
        if document.kind == "llamafactory":
            yield from _of_llamafactory(document, metric, name)
        elif metric is not None and name is not None:
            yield from _of_trl(run, document, metric, name)


def _of_trl(run: LintContext, document: Document, metric: Place, name: str) -> Iterator[Finding]:
    names, releases = _OF_TRL[document.kind]
    if not re.fullmatch(names, name) or not any(run.runs(each) for each in releases):
        return
    why = f"{run.release('trl')} adds it to the log, but not to what evaluation returns"
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
        (at.label("KeyError at the first evaluation"), *also(beside)),
        (why,),
        what,
    )


best_saved_and_not_loaded = rows(
    "best-saved-and-not-loaded",
    "error",
    "silent",
    consumers=("transformers",),
    rows=(
        Row(
            "trainer:load_best_model_at_end=true",
            "the best model is saved, and the last one is kept at the end",
            "loads nothing",
            "the step of the best evaluation is kept for the strategies steps and epoch alone",
            "write the strategy of evaluation as save_strategy",
            beside=("save_strategy=best",),
            beside_label="keeps no step",
            since="transformers>=4.47,<5.1",
        ),
    ),
)
"""transformers 4.47.0 to 5.0.0 trainer.py `_determine_best_metric`; 5.10.4 keeps the step of the
best evaluation for the strategy `best` too."""
