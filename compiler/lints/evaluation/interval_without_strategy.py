"""An interval whose strategy does not go by steps."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.batch.counts import is_positive
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.evaluation.asked import never_evaluates, strategy_of
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_OTHERS: Final = (("save_steps", "save_strategy"), ("logging_steps", "logging_strategy"))


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("trainer"):
        if document.is_view:
            continue  # Axolotl evaluates wherever eval_steps is written
        yield from _evaluation(document)
        yield from _delay(document)
        for steps, strategy in _OTHERS:
            place, said = document.get(steps), document.get(strategy)
            if place is None or said is None or not is_positive(place.value):
                continue
            if said.value in ("epoch", "no", "best", False):
                yield _finding(place, said, f"{strategy} {_word(said)}")


def _evaluation(document: Document) -> Iterator[Finding]:
    place, said = document.get("eval_steps"), strategy_of(document)
    if place is None or not is_positive(place.value):
        return
    if never_evaluates(document) or (said is not None and said.value == "epoch"):
        what = f"{said.path} {_word(said)}" if said else "no eval_strategy"
        yield _finding(place, said, what)


def _delay(document: Document) -> Iterator[Finding]:
    delay, said = document.get("eval_delay"), strategy_of(document)
    if delay is not None and is_positive(delay.value) and never_evaluates(document):
        yield Finding(
            f"eval_delay {delay.value} does nothing: there is no evaluation to wait with",
            (delay.label("not used"), *([said.label("", primary=False)] if said else [])),
            ("eval_strategy is no by default",),
            "write eval_strategy: steps, or remove it",
        )


def _word(said: Place) -> str:
    return "no" if said.value is False else str(said.value)


def _finding(place: Place, said: Place | None, what: str) -> Finding:
    name = place.path.removesuffix("_steps")
    never = said is None or said.value in ("no", False)
    act = {"eval": "evaluation", "save": "checkpoint"}.get(name, "log line")
    fix = Fix((said.replaced("steps"),), "unsafe") if said is not None else None
    return Finding(
        f"{place.path} {place.value} does nothing with {what}",
        (
            place.label("not used"),
            *([said.label("decides", primary=False)] if said is not None else []),
        ),
        (f"there is no {act} at all" if never else f"one {act} comes after each epoch",),
        f"write {name}_strategy: steps",
        fix,
    )


RULE = Rule(
    name="interval-without-strategy",
    severity="warning",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 trainer_callback.py `DefaultFlowCallback.on_step_end`: "
            "each interval is looked at only with strategy steps; eval_strategy is no by default"
        ),
    ),
    check=_check,
)
