"""The best model is to be loaded, and saving does not keep step with evaluation."""

import re
from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.lints.batch.counts import is_number, is_whole
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.effective import Effective
from tunec.compiler.lints.kinds import fields_of
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_OFTEN: Final = re.compile(r"(?:eval|save)\w*_(?:ratio|per_epoch|interval|freq|frequency|every)\b")


def _check(run: Run) -> Iterator[Finding]:
    for best in run.each("trainer", "load_best_model_at_end"):
        if best.value is True and not _is_set_by_script(best.document):
            yield from _cadence(run, best)


def _is_set_by_script(document: Document) -> bool:
    """Whether a script has a flag of its own for how often it saves or evaluates."""
    if document.format != "shell":
        return False
    strange = document.found.keys() - fields_of("hf") - fields_of(document.kind)
    return any(_OFTEN.search(name) for name in strange)


def _cadence(run: Run, best: Place) -> Iterator[Finding]:
    evaluation = run.said("trainer", "eval_strategy", "evaluation_strategy")
    save = run.effective("trainer", "save_strategy")
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


def _steps(run: Run, best: Place) -> Iterator[Finding]:
    save, every = run.effective("trainer", "save_steps"), run.effective("trainer", "eval_steps")
    if every.value is None:
        every = run.effective("trainer", "logging_steps")
    if _is_share(save.value) != _is_share(every.value) and _is_known(save, every):
        yield _mixed(best, save, every)
    if _is_share(save.value) and _is_share(every.value):
        yield from _shares(best, save, every)
    if not (_whole(save.value) and _whole(every.value)) or save.value % every.value == 0:
        return
    places = [each.place for each in (save, every) if each.place is not None]
    down = save.value - save.value % every.value or every.value
    yield Finding(
        f"save_steps {save.value} is no multiple of eval_steps {every.value}",
        (
            *(each.label("", primary=at == 0) for at, each in enumerate(places)),
            best.label("", primary=not places),
        ),
        ("the best model can only be loaded if every save follows an evaluation",),
        f"write save_steps: {down}",
    )


_FINE: Final = 1_000_000
"""transformers 4.40.2 to 5.23.0 `__post_init__`, LARGE_MULTIPLIER: shares become whole numbers."""


def _shares(best: Place, save: Effective, every: Effective) -> Iterator[Finding]:
    step = every.value * _FINE
    if not step or (save.value * _FINE) % step == 0:
        return
    places = [each.place for each in (save, every) if each.place is not None]
    yield Finding(
        f"save_steps {save.value} is no multiple of eval_steps {every.value}",
        (
            *(each.label("", primary=at == 0) for at, each in enumerate(places)),
            best.label("", primary=not places),
        ),
        ("the best model can only be loaded if every save follows an evaluation",),
        f"write save_steps: {every.value * max(1, round(save.value / every.value)):g}",
    )


def _mixed(best: Place, save: Effective, every: Effective) -> Finding:
    places = [each.place for each in (save, every) if each.place is not None]
    return Finding(
        f"save_steps {save.value} beside eval_steps {every.value}: one is a share of all steps",
        (
            *(each.label("", primary=at == 0) for at, each in enumerate(places)),
            best.label("", primary=not places),
        ),
        ("a number below 1 is a share, and a multiple of the other cannot be told",),
        "write both as numbers of steps, or both as shares",
    )


def _is_known(*numbers: Effective) -> bool:
    return all(is_number(each.value) and each.value > 0 for each in numbers)


def _is_share(value: Any) -> bool:
    return is_number(value) and 0 < value < 1


def _whole(value: Any) -> bool:
    return is_whole(value) and value >= 1


def _word(value: Any) -> str:
    return "no" if value is False else str(value)


RULE = Rule(
    name="best-model-cadence",
    severity="error",
    consequence="parse",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 training_args.py `TrainingArguments.__post_init__`: "
            "--load_best_model_at_end requires the save and eval strategy to match, a round "
            "multiple"
        ),
    ),
    check=_check,
)
